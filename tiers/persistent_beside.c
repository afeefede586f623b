/* SPDX-License-Identifier: Apache-2.0
 * The small files of a version that belong to no shard, .metadata and .index: what the manifest says about them. */
#include "tiers/persistent_impl.h"

#include "tiers/published_chunk.h"
#include <stdio.h>
#include <stdlib.h>

static tck_status_t digest_chunks(const struct folder_file *opened, struct manifest_file *file, struct error *err)
{
    uint8_t *buffer = persistent_buffer(file->bytes);
    tck_status_t status = TCK_OK;
    file->crcs = calloc(chunk_count(file->bytes), sizeof(*file->crcs));
    if (buffer == NULL || file->crcs == NULL) {
        status = error_set(err, TCK_ERR_NOMEM, "%s: no memory to read it", file->name);
    }
    for (uint32_t i = 0; status == TCK_OK && i < chunk_count(file->bytes); i++) {
        struct published_chunk chunk = published_chunk_of(file, i);
        status = published_chunk_fetch(opened, &chunk, buffer, err);
        if (status == TCK_OK) {
            file->crcs[i] = crc32c(0, buffer, chunk.bytes);
        }
    }
    free(buffer);
    return status;
}

tck_status_t beside_describe(const struct folder *dir, const char *name, struct manifest_file *out, struct error *err)
{
    struct manifest_file file = {0};
    struct folder_file opened;
    *out = file;
    snprintf(file.name, sizeof(file.name), "%s", name);
    tck_status_t status = folder_size(dir, name, &file.bytes, err);
    if (status == TCK_ERR_NOENT) {
        return TCK_OK;
    }
    if (status == TCK_OK) {
        status = folder_open_file(dir, name, &opened, err);
    }
    if (status != TCK_OK) {
        return status;
    }
    folder_file_forget_cached(&opened); /* what is on the device counts */
    status = digest_chunks(&opened, &file, err);
    folder_file_close(&opened);
    if (status != TCK_OK) {
        free(file.crcs);
        return status;
    }
    file.root = digest_root(file.crcs, file.bytes);
    *out = file;
    return TCK_OK;
}

static bool is_content(const struct manifest_file *file, const uint8_t *content, uint64_t bytes)
{
    bool same = file->bytes == bytes;
    for (uint32_t i = 0; same && i < chunk_count(bytes); i++) {
        same = file->crcs[i] == crc32c(0, content + (uint64_t)i * CHUNK_BYTES, chunk_size(bytes, i));
    }
    return same;
}

tck_status_t beside_write(const struct folder *dir, const char *name, const struct beside *content,
                          struct manifest_file *out, struct error *err)
{
    struct manifest_file written = {0};
    tck_status_t status = folder_write(dir, name, content->bytes, content->len, err);
    if (status == TCK_OK) {
        status = beside_describe(dir, name, &written, err);
    }
    if (status == TCK_OK && !is_content(&written, content->bytes, content->len)) {
        status = error_set(err, TCK_ERR_IO, "%s: storage returned other bytes than were written", name);
    }
    if (status != TCK_OK) {
        free(written.crcs);
        return status;
    }
    *out = written;
    return TCK_OK;
}
