/* SPDX-License-Identifier: Apache-2.0
 * .index: the headers of all files of a version in a row, in the order of the manifest, so that a reader finds what it
 * needs without opening the other files. Headers depend on the layout alone: they are read when a layout is published
 * for the first time, and kept for later versions. If that takes too long, versions are published without .index, and
 * each publish goes on where the one before has stopped. */
#include "tiers/index_kept.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/image_check.h"
#include "base/log.h"
#include "tiers/persistent_impl.h"
#include "tiers/published_chunk.h"
#include <inttypes.h>
#include <stdlib.h>

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
    const struct publish_ask *ask;
    const struct folder *dir;
    struct hash128 layout;
    uint8_t *buffer;       /* for a chunk */
    struct writer headers; /* of the first `files` files */
    uint32_t files;
    bool late, too_long;
    bool said; /* the log says so already */
};

static tck_status_t check_goes_on(const struct reading *r, struct error *err)
{
    persistent_came_further(r->p);
    return atomic_load(&r->p->canceled) ? error_set(err, TCK_ERR_CANCELED, "the persistent tier is closing")
                                        : check_not_given_up(r->ask, err);
}

static tck_status_t append(struct reading *r, uint64_t bytes, struct error *err)
{
    if (bytes > r->headers.max - r->headers.len) {
        r->too_long = true;
        return error_set(err, TCK_ERR_UNSUPPORTED, "the headers of its files have more than %zu bytes together",
                         r->headers.max);
    }
    write_bytes(&r->headers, r->buffer, bytes);
    return r->headers.failed ? error_set(err, TCK_ERR_NOMEM, "no memory for the headers of its files") : TCK_OK;
}

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
            status = append(r, part, err);
            done += part;
        }
        if (status == TCK_OK) {
            status = check_goes_on(r, err);
        }
    }
    return status;
}

static tck_status_t read_header(struct reading *r, const struct manifest_file *file, struct error *err)
{
    struct folder_file opened;
    size_t before = r->headers.len;
    if (file->bytes < sizeof(uint64_t)) {
        return error_set(err, TCK_ERR_CORRUPT, "%s: %" PRIu64 " bytes are too few for an image", file->name,
                         file->bytes);
    }
    tck_status_t status = folder_open_file(r->dir, file->name, &opened, err);
    if (status == TCK_OK) {
        status = append_header(r, &opened, file, err);
        folder_file_close(&opened);
    }
    if (status != TCK_OK) { /* what was read of the files before it stays */
        r->headers.len = before;
        r->headers.failed = false;
    }
    return status;
}

/* At least of one more file, so that publishes of this layout come to an end with it. */
static tck_status_t read_headers(struct reading *r, struct error *err)
{
    const struct manifest *manifest = r->ask->manifest;
    uint64_t begun_ms = clock_ms();
    uint32_t first = r->files;
    tck_status_t status = TCK_OK;
    while (status == TCK_OK && r->files < manifest->file_count) {
        uint64_t ms = clock_ms() - begun_ms;
        if (r->files > first && ms >= r->p->index_limits.ms) {
            r->late = true;
            return error_set(err, TCK_ERR_TIMEDOUT,
                             "the headers of %" PRIu32 " of its %" PRIu32 " files were read in %" PRIu64
                             " ms, and the next publish goes on with the others",
                             r->files - first, manifest->file_count, ms);
        }
        status = read_header(r, &manifest->files[r->files], err);
        r->files += status == TCK_OK;
    }
    return status;
}

static tck_status_t begin_reading(struct reading *r, const struct index_kept *before, struct error *err)
{
    r->headers = writer_new(r->p->index_limits.bytes);
    r->buffer = persistent_buffer(CHUNK_BYTES);
    if (before != NULL) {
        write_bytes(&r->headers, before->bytes, before->len);
        r->files = before->files;
    }
    return r->buffer == NULL || r->headers.failed ? error_set(err, TCK_ERR_NOMEM, "no memory to read headers") : TCK_OK;
}

/* To be kept; NULL: nothing, since there is no memory for it. */
static struct index_kept *kept_new(struct reading *r)
{
    struct index_kept *kept = calloc(1, sizeof(*kept));
    if (kept == NULL) {
        return NULL;
    }
    *kept =
        (struct index_kept){.refs = 1, .of = r->layout, .files = r->files, .late = r->late, .too_long = r->too_long};
    if (r->too_long) {
        writer_free(&r->headers);
    }
    kept->bytes = writer_take(&r->headers, &kept->len);
    kept->digest = hash128_of(kept->bytes, kept->len);
    if (kept->bytes == NULL) {
        free(kept);
        return NULL;
    }
    return kept;
}

/* TCK_OK: `before`, or what is in next_out, is whole. Else there may be something to keep, too. */
static tck_status_t headers_of(struct reading *r, const struct index_kept *before, struct index_kept **next_out,
                               struct error *err)
{
    r->said = before != NULL && before->too_long;
    if (r->said) {
        return error_set(err, TCK_ERR_UNSUPPORTED, "the headers of its files are too long");
    }
    if (before != NULL && before->files == r->ask->manifest->file_count) {
        return TCK_OK;
    }
    tck_status_t status = begin_reading(r, before, err);
    uint32_t first = r->files;
    if (status == TCK_OK) {
        status = read_headers(r, err);
        bool late_before = before != NULL && before->late;
        r->said = r->late && late_before;
        r->late = r->late || late_before;
        *next_out = r->files > first || r->too_long ? kept_new(r) : NULL;
    }
    if (status == TCK_OK && *next_out == NULL) {
        status = error_set(err, TCK_ERR_NOMEM, "no memory for the headers of its files");
    }
    writer_free(&r->headers);
    free(r->buffer);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

/* What a failed attempt has left: a file that the manifest does not name would be taken for a foreign one. */
static tck_status_t leave_none(const struct reading *r, const struct error *why, struct error *err)
{
    struct version version = r->ask->manifest->version;
    if (!r->said) {
        log_warn("version %" PRIu64 ".%" PRIu64 " gets no " VERSION_INDEX_NAME
                 ", so readers open each of its files: %s",
                 version.term, version.step, why->text);
    }
    tck_status_t status = check_not_given_up(r->ask, err);
    if (status == TCK_OK) {
        status = folder_remove(r->dir, VERSION_INDEX_NAME, err);
    }
    return status == TCK_ERR_NOENT ? TCK_OK : status;
}

tck_status_t index_make(struct persistent *p, const struct publish_ask *ask, const struct folder *dir,
                        struct manifest_file *out, struct error *err)
{
    struct reading r = {.p = p, .ask = ask, .dir = dir, .layout = shards_hash(ask->manifest)};
    struct index_kept *kept = index_kept_take(p->terms), *next = NULL;
    const struct index_kept *use = index_kept_usable(kept, r.layout) ? kept : NULL;
    struct error why;
    *out = (struct manifest_file){0};
    tck_status_t status = headers_of(&r, use, &next, &why);
    if (next != NULL) {
        index_kept_put(p->terms, next, kept);
        use = next;
    }
    if (status == TCK_OK) {
        status = check_not_given_up(ask, &why);
    }
    if (status == TCK_OK) {
        status = beside_write(dir, VERSION_INDEX_NAME, &(struct beside){use->bytes, use->len}, out, &why);
    }
    index_kept_drop(next);
    index_kept_drop(kept);
    return status == TCK_OK ? TCK_OK : leave_none(&r, &why, err);
}
