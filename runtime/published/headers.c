/* SPDX-License-Identifier: Apache-2.0 */
#include "published/headers.h"

#include "base/image_check.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdlib.h>

tck_status_t header_read(struct chunks *chunks, uint32_t file, struct header *out, struct error *err)
{
    const struct manifest_file *of = &chunks->from.manifest->files[file];
    uint8_t prefix[sizeof(uint64_t)];
    uint64_t len = 0;
    if (of->bytes < sizeof(prefix)) {
        return error_set(err, TCK_ERR_CORRUPT, "%" PRIu64 " bytes are too few for an image", of->bytes);
    }
    tck_status_t status = chunks_read(chunks, file, 0, sizeof(prefix), prefix, err);
    if (status == TCK_OK) {
        status = image_header_bytes(prefix, sizeof(prefix), of->bytes, &len, err);
    }
    if (status != TCK_OK) {
        return status;
    }
    uint8_t *bytes = malloc(len);
    if (bytes == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a header of %" PRIu64 " bytes", len);
    }
    status = chunks_read(chunks, file, 0, len, bytes, err);
    if (status != TCK_OK) {
        free(bytes);
        return status;
    }
    *out = (struct header){bytes, len};
    return TCK_OK;
}

tck_status_t headers_new(uint32_t count, struct headers *out, struct error *err)
{
    *out = (struct headers){.count = count, .of = calloc(count + (size_t)1, sizeof(*out->of))};
    return out->of != NULL ? TCK_OK : error_set(err, TCK_ERR_NOMEM, "no memory for %" PRIu32 " headers", count);
}

void headers_free(struct headers *headers)
{
    for (uint32_t i = 0; headers->of != NULL && i < headers->count; i++) {
        free(headers->of[i].bytes);
    }
    free(headers->of);
    *headers = (struct headers){0};
}

tck_status_t headers_read(struct headers *headers, struct chunks *chunks, struct headers_part part, struct error *err)
{
    for (uint64_t i = part.first; i < headers->count; i += part.step) {
        tck_status_t status = header_read(chunks, (uint32_t)i, &headers->of[i], err);
        if (status != TCK_OK) {
            return error_prefix(err, "%s", chunks->from.manifest->files[i].name);
        }
    }
    return TCK_OK;
}

/* Takes the next header from what is left of an index. */
static tck_status_t take_header(struct reader *r, uint64_t file_bytes, struct header *out, struct error *err)
{
    uint64_t len = 0;
    if (reader_left(r) < sizeof(uint64_t)) {
        return error_set(err, TCK_ERR_CORRUPT, "it ends before this header");
    }
    tck_status_t status = image_header_bytes(r->data + r->pos, reader_left(r), file_bytes, &len, err);
    const void *from = status == TCK_OK ? read_bytes(r, len) : NULL;
    if (status != TCK_OK || from == NULL) {
        return status != TCK_OK ? status : error_set(err, TCK_ERR_CORRUPT, "it ends in this header");
    }
    uint8_t *copy = malloc(len);
    if (copy == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a header of %" PRIu64 " bytes", len);
    }
    memcpy(copy, from, len);
    free(out->bytes);
    *out = (struct header){copy, len};
    return TCK_OK;
}

tck_status_t headers_of_index(struct headers *headers, const struct manifest *manifest, const void *index, uint64_t len,
                              struct error *err)
{
    struct reader r = reader_of(index, len);
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        tck_status_t status = take_header(&r, manifest->files[i].bytes, &headers->of[i], err);
        if (status != TCK_OK) {
            return error_prefix(err, VERSION_INDEX_NAME ": %s", manifest->files[i].name);
        }
    }
    return reader_done(&r) ? TCK_OK
                           : error_set(err, TCK_ERR_CORRUPT, VERSION_INDEX_NAME ": something follows the last header");
}

void headers_without_index(const struct chunks *chunks, const struct error *why)
{
    log_warn("%s/" VERSION_INDEX_NAME " cannot be used, so the header of each file is read instead: %s",
             chunks->from.path, why->text);
}

void headers_pack(const struct headers *headers, struct headers_part part, struct writer *w)
{
    for (uint64_t i = part.first; i < headers->count; i += part.step) {
        write_u64(w, headers->of[i].len);
        write_bytes(w, headers->of[i].bytes, headers->of[i].len);
    }
}

tck_status_t headers_unpack(struct headers *headers, struct headers_part part, const void *data, size_t len,
                            struct error *err)
{
    struct reader r = reader_of(data, len);
    for (uint64_t i = part.first; i < headers->count; i += part.step) {
        uint64_t bytes = read_u64(&r);
        const void *from = read_bytes(&r, bytes);
        uint8_t *copy = from != NULL ? malloc(bytes + 1) : NULL;
        if (from != NULL && copy == NULL) {
            return error_set(err, TCK_ERR_NOMEM, "no memory for a header of %" PRIu64 " bytes", bytes);
        }
        if (from == NULL) {
            break;
        }
        memcpy(copy, from, bytes);
        free(headers->of[i].bytes);
        headers->of[i] = (struct header){copy, bytes};
    }
    return reader_done(&r) ? TCK_OK : error_set(err, TCK_ERR_PROTO, "the headers that were received are malformed");
}
