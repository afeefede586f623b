/* SPDX-License-Identifier: Apache-2.0
 * Describes the contents of a segment to returning trainers, which compare them with what they are about to register.
 * The capacities of blobs are a part of the layout, so a trainer learns here which ones to register. A checksum shows
 * whether the rest of the table is the same; docs/formats.md defines it. */
#include "agent/command/segment_contents.h"

#include "base/image_check.h"
#include "base/json.h"
#include "base/log.h"
#include "base/record.h"
#include "base/secret.h"
#include "core/slot.h"
#include "tiers/segment.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NUMBERS_BYTES (TCK_MAX_NDIM * 21 + 1)

struct contents {
    json_t *blobs;
    uint64_t table;
};

static void print_numbers(const uint64_t *numbers, uint32_t count, char out[NUMBERS_BYTES])
{
    size_t len = 0;
    out[0] = '\0';
    for (uint32_t d = 0; d < count; d++) {
        len += (size_t)snprintf(out + len, NUMBERS_BYTES - len, "%s%" PRIu64, d > 0 ? "," : "", numbers[d]);
    }
}

/* The first 8 bytes of the SHA-256 of one entry's line. */
static uint64_t entry_number(const struct image_entry *entry)
{
    char line[TCK_MAX_KEY + 3 * NUMBERS_BYTES + 32];
    char whole[NUMBERS_BYTES];
    char offset[NUMBERS_BYTES];
    char shape[NUMBERS_BYTES];
    uint8_t digest[MAC_BYTES];
    uint64_t number;
    print_numbers(entry->global_shape, entry->ndim, whole);
    print_numbers(entry->offset, entry->ndim, offset);
    print_numbers(entry->shape, entry->ndim, shape);
    int len = entry->blob ? snprintf(line, sizeof(line), "%s\nblob", entry->key)
                          : snprintf(line, sizeof(line), "%s\n%s\n%s\n%s\n%s", entry->key, dtype_name(entry->dtype),
                                     whole, offset, shape);
    sha256(line, (size_t)len, digest);
    memcpy(&number, digest, sizeof(number));
    return le64toh(number);
}

static tck_status_t add_entry(void *ctx, const struct image_entry *entry, struct error *err)
{
    struct contents *contents = ctx;
    contents->table += entry_number(entry);
    if (entry->blob && !json_add_u64(contents->blobs, entry->key, entry->bytes - BLOB_PREFIX_BYTES)) {
        return error_set(err, TCK_ERR_NOMEM, "out of memory for the capacities of blobs");
    }
    return TCK_OK;
}

static tck_status_t read_header(const struct segment *segment, uint32_t slot, struct contents *out, struct error *err)
{
    const struct image_visit visit = {.visit_entry = add_entry, .ctx = out};
    const uint8_t *image = segment_image(segment, slot);
    uint64_t len = segment_info(segment).image_bytes, header_bytes = 0, bytes = 0;
    tck_status_t status = image_header_bytes(image, len, len, &header_bytes, err);

    return status == TCK_OK ? image_walk(image, header_bytes, &visit, &bytes, err) : status;
}

void contents_add_json(const struct segment *segment, json_t *json)
{
    struct contents contents = {.blobs = json_object()};
    struct error err;
    char table[17] = "";

    for (uint32_t k = 0; k < segment_info(segment).slot_count; k++) {
        if (segment_header(segment, k)->state != SLOT_VERIFIED) {
            continue;
        }
        if (read_header(segment, k, &contents, &err) == TCK_OK) {
            snprintf(table, sizeof(table), "%016" PRIx64, contents.table);
            break; /* the slots of a segment have the same header */
        }
        contents.table = 0;
        log_warn("the contents of slot %u cannot be described: %s", k, err.text);
    }
    json_add(json, "blobs", contents.blobs);
    json_add_str(json, "table", table);
}
