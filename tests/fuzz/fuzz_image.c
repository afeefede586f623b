/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as an image, and any text as the header of one: refused, or sizes that fit each other. */
#include "base/image_check.h"
#include "base/record.h"
#include "fuzz.h"
#include <endian.h>
#include <stdlib.h>
#include <string.h>

static uint64_t end; /* of the entries that were seen */

/* What a reader computes with: within the tensor, of the size of its shape, one entry after the other. */
static tck_status_t look(void *ctx, const struct image_entry *entry, struct error *err)
{
    uint64_t bytes = dtype_bytes(entry->dtype);
    (void)ctx, (void)err;
    MUST_HOLD(entry->ndim <= TCK_MAX_NDIM);
    for (uint32_t d = 0; d < entry->ndim; d++) {
        MUST_HOLD(entry->offset[d] <= entry->global_shape[d]);
        MUST_HOLD(entry->shape[d] <= entry->global_shape[d] - entry->offset[d]);
        bytes *= entry->shape[d];
    }
    MUST_HOLD(bytes == entry->bytes && entry->begin >= end);
    MUST_HOLD(!entry->blob || bytes >= BLOB_PREFIX_BYTES);
    end = entry->begin + bytes;
    return TCK_OK;
}

static void check(const uint8_t *image, size_t len)
{
    const struct image_visit visit = {look, NULL};
    uint64_t data_start = 0, bytes = 0, again = 0;
    end = 0;
    tck_status_t walked = image_walk(image, len, &visit, &again, NULL);
    tck_status_t status = image_check(image, len, &data_start, &bytes, NULL);
    MUST_HOLD(status == walked);
    if (status != TCK_OK) {
        return;
    }
    MUST_HOLD(bytes == again && end <= bytes);
    MUST_HOLD(data_start <= len && data_start % IMAGE_ALIGN == 0);
    MUST_HOLD(bytes >= data_start && bytes % IMAGE_ALIGN == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t total = (size + sizeof(uint64_t) + IMAGE_ALIGN - 1) / IMAGE_ALIGN * IMAGE_ALIGN;
    uint64_t prefix = htole64(total - sizeof(prefix));
    uint8_t *image = malloc(total);
    if (image == NULL) {
        return 0;
    }
    memset(image, ' ', total);
    memcpy(image, &prefix, sizeof(prefix));
    memcpy(image + sizeof(prefix), data, size);
    check(data, size);
    check(image, total);
    free(image);
    return 0;
}
