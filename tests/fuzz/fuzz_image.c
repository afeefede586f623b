/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as an image, and any text as the header of one: refused, or sizes that fit each other. */
#include "base/layout.h"
#include "fuzz.h"
#include <endian.h>
#include <stdlib.h>
#include <string.h>

static void check(const uint8_t *image, size_t len)
{
    uint64_t data_start = 0, bytes = 0;
    if (image_check(image, len, &data_start, &bytes, NULL) != TCK_OK) {
        return;
    }
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
