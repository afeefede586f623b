/* SPDX-License-Identifier: Apache-2.0
 * .metadata, the file by which PyTorch's DCP finds the tensors in the files of a version. A trainer makes its content,
 * which is a blob in the image of one shard, so it is protected and drained as the shard is. */
#include "tiers/persistent_impl.h"

#include "base/image_check.h"
#include "base/record.h"
#include <endian.h>
#include <stdlib.h>
#include <string.h>

struct metadata_entry {
    uint64_t begin, bytes; /* of the blob in the image; 0: there is none */
};

static tck_status_t note_entry(void *ctx, const struct image_entry *entry, struct error *err)
{
    struct metadata_entry *found = ctx;
    (void)err;
    if (entry->blob && strcmp(entry->key, TCK_METADATA_KEY) == 0) {
        *found = (struct metadata_entry){entry->begin, entry->bytes};
    }
    return TCK_OK;
}

/* Most images have no such blob. To see that, their header, which may have megabytes, need not be parsed. */
static tck_status_t find_entry(const uint8_t *header, uint64_t header_bytes, struct metadata_entry *out,
                               struct error *err)
{
    static const char key[] = "\"" TCK_METADATA_KEY "\"";
    struct image_visit visit = {.visit_entry = note_entry, .ctx = out};
    uint64_t bytes;
    if (memmem(header, header_bytes, key, sizeof(key) - 1) == NULL) {
        return TCK_OK;
    }
    return image_walk(header, header_bytes, &visit, &bytes, err);
}

static tck_status_t copy_content(const struct tier_item *item, const struct metadata_entry *entry, struct metadata *out,
                                 struct error *err)
{
    uint64_t bytes;
    if (entry->begin > item->image_bytes || entry->bytes > item->image_bytes - entry->begin) {
        return error_set(err, TCK_ERR_CORRUPT, METADATA_NAME " lies outside its image");
    }
    memcpy(&bytes, item->image + entry->begin, sizeof(bytes));
    bytes = le64toh(bytes);
    if (bytes > entry->bytes - BLOB_PREFIX_BYTES) {
        return error_set(err, TCK_ERR_CORRUPT, METADATA_NAME " is longer than its blob");
    }
    out->content = malloc(bytes + 1);
    if (out->content == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for " METADATA_NAME);
    }
    memcpy(out->content, item->image + entry->begin + BLOB_PREFIX_BYTES, bytes);
    out->bytes = bytes;
    return TCK_OK;
}

tck_status_t metadata_take(const struct tier_item *item, struct metadata *out, struct error *err)
{
    struct metadata_entry entry = {0};
    struct error no_image;
    uint64_t header_bytes = 0;
    if (image_header_bytes(item->image, item->image_bytes, item->image_bytes, &header_bytes, &no_image) != TCK_OK) {
        return TCK_OK; /* a put does not judge what it is given */
    }
    uint8_t *header = malloc(header_bytes);
    if (header == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the header of an image");
    }
    memcpy(header, item->image, header_bytes);
    tck_status_t status = find_entry(header, header_bytes, &entry, err);
    if (status == TCK_OK && entry.bytes > 0) {
        status = copy_content(item, &entry, out, err);
    }
    free(header);
    return status;
}
