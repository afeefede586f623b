/* SPDX-License-Identifier: Apache-2.0
 * .index: the headers of all files of a version in a row, in the order of the manifest, so that a reader finds what it
 * needs without opening the other files. Headers depend on the layout alone: they are read when a layout is published
 * for the first time, and kept for later versions. */
#include "tiers/persistent_impl.h"

#include "base/buf.h"
#include "base/image_check.h"
#include "base/log.h"
#include "tiers/published_chunk.h"
#include <inttypes.h>
#include <stdlib.h>

#define INDEX_BYTES_MAX ((size_t)64 << 20) /* also bounds what is kept */

static struct hash128 shards_hash(const struct manifest *manifest)
{
    struct hash128 hash = {manifest->file_count, 1};
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        struct hash128 of[3] = {hash, manifest->files[i].shard, {manifest->files[i].bytes, i}};
        hash = hash128_of(of, sizeof(of));
    }
    return hash;
}

/* ---- reading headers ------------------------------------------------------------------------------------------- */

struct reading {
    const struct persistent *p;
    const struct folder *dir;
    uint8_t *buffer; /* for a chunk */
    struct writer headers;
};

/* Appends the header of an open file. Its chunks are checked, so that it is what the ranks have saved. */
static tck_status_t append_header(struct reading *r, const struct folder_file *opened, const struct manifest_file *file,
                                  struct error *err)
{
    uint64_t header = 0, done = 0;
    tck_status_t status = TCK_OK;
    for (uint32_t i = 0; status == TCK_OK && (i == 0 || done < header); i++) {
        struct published_chunk chunk = published_chunk_of(file, i);
        status = published_chunk_read(opened, &chunk, r->buffer, err);
        if (status == TCK_OK && i == 0) {
            status = image_header_bytes(r->buffer, chunk.bytes, file->bytes, &header, err);
        }
        uint64_t part = header - done < chunk.bytes ? header - done : chunk.bytes;
        if (status == TCK_OK) {
            write_bytes(&r->headers, r->buffer, part);
            done += part;
            persistent_came_further(r->p);
        }
    }
    return status;
}

static tck_status_t read_header(struct reading *r, const struct manifest_file *file, struct error *err)
{
    struct folder_file opened;
    if (file->bytes < sizeof(uint64_t)) {
        return error_set(err, TCK_ERR_CORRUPT, "%s: %" PRIu64 " bytes are too few for an image", file->name,
                         file->bytes);
    }
    tck_status_t status = folder_open_file(r->dir, file->name, &opened, err);
    if (status == TCK_OK) {
        status = append_header(r, &opened, file, err);
        folder_file_close(&opened);
    }
    return status;
}

static tck_status_t read_headers(const struct persistent *p, const struct folder *dir, const struct manifest *manifest,
                                 struct index_kept *out, struct error *err)
{
    struct reading r = {.p = p, .dir = dir, .buffer = persistent_buffer(CHUNK_BYTES)};
    size_t len = 0;
    r.headers = writer_new(INDEX_BYTES_MAX);
    tck_status_t status = r.buffer == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory to read headers") : TCK_OK;
    for (uint32_t i = 0; i < manifest->file_count && status == TCK_OK && !r.headers.failed; i++) {
        status = read_header(&r, &manifest->files[i], err);
    }
    if (status == TCK_OK) {
        *out = (struct index_kept){.of = shards_hash(manifest)};
        out->bytes = writer_take(&r.headers, &len);
        out->len = out->bytes == NULL ? 0 : len;
    }
    writer_free(&r.headers);
    free(r.buffer);
    return status;
}

/* ---- what is kept ---------------------------------------------------------------------------------------------- */

/* Taken out while a publish uses it, since publishes of hung storage may overlap. An archive has the layouts of
 * save_dir, so both keep one. */
static struct index_kept take_kept(struct persistent *p)
{
    pthread_mutex_lock(&p->puts_lock);
    struct index_kept kept = p->index;
    p->index = (struct index_kept){0};
    pthread_mutex_unlock(&p->puts_lock);
    return kept;
}

static void put_kept(struct persistent *p, struct index_kept kept)
{
    pthread_mutex_lock(&p->puts_lock);
    struct index_kept other = p->index;
    p->index = kept;
    pthread_mutex_unlock(&p->puts_lock);
    free(other.bytes);
}

static tck_status_t headers_of(const struct persistent *p, const struct folder *dir, const struct manifest *manifest,
                               struct index_kept *kept, struct error *err)
{
    if (hash128_is(kept->of, shards_hash(manifest))) {
        return TCK_OK;
    }
    free(kept->bytes);
    *kept = (struct index_kept){0};
    return read_headers(p, dir, manifest, kept, err);
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

/* What a failed attempt has left: a file that the manifest does not name would be taken for a foreign one. */
static tck_status_t leave_none(const struct folder *dir, struct error *err)
{
    tck_status_t status = folder_remove(dir, VERSION_INDEX_NAME, err);
    return status == TCK_ERR_NOENT ? TCK_OK : status;
}

tck_status_t index_make(struct persistent *p, const struct folder *dir, const struct manifest *manifest,
                        struct manifest_file *out, struct error *err)
{
    struct index_kept kept = take_kept(p->terms);
    struct error why;
    *out = (struct manifest_file){0};
    tck_status_t status = headers_of(p, dir, manifest, &kept, &why);
    if (status == TCK_OK && kept.len > 0) {
        status = beside_write(dir, VERSION_INDEX_NAME, &(struct beside){kept.bytes, kept.len}, out, &why);
    }
    put_kept(p->terms, kept);
    if (status == TCK_OK) {
        return TCK_OK;
    }
    log_warn("version %" PRIu64 ".%" PRIu64 " gets no " VERSION_INDEX_NAME ", so readers open each of its files: %s",
             manifest->version.term, manifest->version.step, why.text);
    return leave_none(dir, err);
}
