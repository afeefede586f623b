/* SPDX-License-Identifier: Apache-2.0
 * A chunk is read completely into our own buffer and checked there, so that no byte of a damaged chunk reaches a
 * caller. */
#include "published/checked_chunks.h"
#include "base/bounded.h"
#include "published/retry.h"
#include "tiers/published_chunk.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct manifest_file *file_at(const struct chunks *chunks, uint32_t file)
{
    const struct manifest *manifest = chunks->from.manifest;
    return file < manifest->file_count ? &manifest->files[file] : &manifest->index;
}

static uint32_t file_count(const struct manifest *manifest)
{
    return manifest->file_count + 1;
}

tck_status_t chunks_open(struct chunks *chunks, const struct chunks_source *from, struct error *err)
{
    *chunks = (struct chunks){.from = *from};
    chunks->files = calloc(file_count(from->manifest), sizeof(*chunks->files));
    if (chunks->files == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory to read %" PRIu32 " files", from->manifest->file_count);
    }
    for (uint32_t i = 0; i < file_count(from->manifest); i++) {
        chunks->files[i] = FOLDER_FILE_NONE;
    }
    return TCK_OK;
}

static void close_file(struct chunks *chunks, uint32_t file)
{
    if (folder_file_is(&chunks->files[file])) {
        folder_file_close(&chunks->files[file]);
        chunks->open_count--;
    }
}

void chunks_close(struct chunks *chunks)
{
    for (uint32_t i = 0; chunks->files != NULL && i < file_count(chunks->from.manifest); i++) {
        close_file(chunks, i);
    }
    free(chunks->files);
    for (uint32_t i = 0; i < CHUNKS_KEPT; i++) {
        free(chunks->buffers[i].bytes);
    }
    *chunks = (struct chunks){0};
}

/* Files are closed in turn, not by age, since they are read one after the other. */
static void make_room(struct chunks *chunks)
{
    while (chunks->open_count >= FILES_KEPT_MAX) {
        close_file(chunks, chunks->next_close);
        chunks->next_close = (chunks->next_close + 1) % file_count(chunks->from.manifest);
    }
}

/* ---- one chunk from storage ----------------------------------------------------------------------------------------
 */

/* Everything that the reading thread needs. That thread may be abandoned, so what it has open is its own. */
struct fetch {
    struct published_chunk chunk;
    struct folder dir;       /* if the file */
    struct folder_file file; /* is not open yet */
    uint8_t *bytes;          /* owned */
    tck_status_t status;
    struct error error;
};

/* A version that lacks a file is damaged: callers take TCK_ERR_NOENT for something that was never saved. */
static tck_status_t open_file(struct fetch *f)
{
    tck_status_t status = folder_open_file(&f->dir, f->chunk.file, &f->file, &f->error);
    return status == TCK_ERR_NOENT ? (f->error.code = TCK_ERR_CORRUPT) : status;
}

static void fetch(void *job)
{
    struct fetch *f = job;
    f->status = folder_file_is(&f->file) ? TCK_OK : open_file(f);
    if (f->status == TCK_OK) {
        f->status = published_chunk_read(&f->file, &f->chunk, f->bytes, &f->error);
    }
    f->status = retry_answer(f->status, &f->error);
}

static void drop_fetch(void *job)
{
    struct fetch *f = job;
    folder_file_close(&f->file);
    folder_close(&f->dir);
    free(f->bytes);
    free(f);
}

/* Takes the buffer's memory over. */
static tck_status_t new_fetch(const struct chunks *chunks, uint32_t file, uint32_t chunk, struct chunk_buffer *buffer,
                              struct fetch **out, struct error *err)
{
    const struct manifest_file *of = file_at(chunks, file);
    struct fetch *f = calloc(1, sizeof(*f));
    if (f == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "%s: no memory to read a chunk", of->name);
    }
    *f = (struct fetch){.dir = FOLDER_NONE, .file = FOLDER_FILE_NONE, .chunk = published_chunk_of(of, chunk)};
    f->bytes = buffer->bytes == NULL ? malloc(CHUNK_BYTES) : buffer->bytes;
    buffer->bytes = NULL;
    if (f->bytes == NULL) {
        drop_fetch(f);
        return error_set(err, TCK_ERR_NOMEM, "%s: no memory to read a chunk", of->name);
    }
    bool open = folder_file_is(&chunks->files[file]);
    tck_status_t status =
        open ? folder_file_dup(&chunks->files[file], &f->file, err) : folder_dup(chunks->from.dir, &f->dir, err);
    if (status != TCK_OK) {
        drop_fetch(f);
        return error_prefix(err, "%s: open", of->name);
    }
    *out = f;
    return TCK_OK;
}

static void keep_open(struct chunks *chunks, uint32_t file, struct fetch *f)
{
    if (!folder_file_is(&chunks->files[file]) && folder_file_is(&f->file)) {
        make_room(chunks);
        chunks->files[file] = f->file;
        chunks->open_count++;
        f->file = FOLDER_FILE_NONE;
    }
}

static tck_status_t fill_once(struct chunks *chunks, uint32_t file, uint32_t chunk, struct chunk_buffer *buffer,
                              struct error *err)
{
    struct fetch *f = NULL;
    tck_status_t status = new_fetch(chunks, file, chunk, buffer, &f, err);
    if (status != TCK_OK) {
        return status;
    }
    const struct bounded_work work = {.work = fetch, .drop = drop_fetch, .job = f};
    status = bounded_do(&work, chunks->from.limit_ms, err);
    if (status != TCK_OK) {
        return error_prefix(err, "%.200s/%s", chunks->from.path, file_at(chunks, file)->name);
    }
    status = f->status;
    if (status == TCK_OK) {
        keep_open(chunks, file, f);
    } else {
        *err = f->error;
    }
    buffer->bytes = f->bytes;
    f->bytes = NULL;
    drop_fetch(f);
    return status;
}

/* A file that could not be read is reopened. */
static tck_status_t fill(struct chunks *chunks, uint32_t file, uint32_t chunk, struct chunk_buffer *buffer,
                         struct error *err)
{
    tck_status_t status = TCK_ERR_IO;
    for (int i = 0; i < READS_MAX && retry_helps(status); i++) {
        retry_pause(i);
        status = fill_once(chunks, file, chunk, buffer, err);
        if (retry_helps(status)) { /* after a time-out, closing it might hang, too */
            close_file(chunks, file);
        }
    }
    return status;
}

/* ---- chunks at hand ------------------------------------------------------------------------------------------------
 */

static struct chunk_buffer *find(struct chunks *chunks, uint32_t file, uint32_t chunk)
{
    struct chunk_buffer *oldest = &chunks->buffers[0];
    for (uint32_t i = 0; i < CHUNKS_KEPT; i++) {
        struct chunk_buffer *buffer = &chunks->buffers[i];
        if (buffer->used != 0 && buffer->file == file && buffer->chunk == chunk) {
            return buffer;
        }
        oldest = buffer->used < oldest->used ? buffer : oldest;
    }
    oldest->used = 0;
    return oldest;
}

/* A buffer with the checked chunk; valid until the next call. */
static tck_status_t get(struct chunks *chunks, uint32_t file, uint32_t chunk, const uint8_t **out, struct error *err)
{
    struct chunk_buffer *buffer = find(chunks, file, chunk);
    tck_status_t status = TCK_OK;
    if (buffer->used == 0) {
        status = fill(chunks, file, chunk, buffer, err);
        chunks->read_bytes += chunk_size(file_at(chunks, file)->bytes, chunk);
    }
    if (status == TCK_OK) {
        *buffer = (struct chunk_buffer){buffer->bytes, file, chunk, ++chunks->clock};
        *out = buffer->bytes;
    }
    return status;
}

tck_status_t chunks_read(struct chunks *chunks, uint32_t file, uint64_t at, uint64_t len, void *to, struct error *err)
{
    const struct manifest_file *of = file_at(chunks, file);
    uint8_t *out = to;
    if (at > of->bytes || len > of->bytes - at) {
        return error_set(err, TCK_ERR_INVAL, "%s: %" PRIu64 " bytes at %" PRIu64 " are not within its %" PRIu64,
                         of->name, len, at, of->bytes);
    }
    while (len > 0) {
        uint32_t chunk = (uint32_t)(at / CHUNK_BYTES), skip = (uint32_t)(at % CHUNK_BYTES);
        uint64_t part = CHUNK_BYTES - skip < len ? CHUNK_BYTES - skip : len;
        const uint8_t *bytes = NULL;
        tck_status_t status = get(chunks, file, chunk, &bytes, err);
        if (status != TCK_OK) {
            return status;
        }
        memcpy(out, bytes + skip, part);
        out += part;
        at += part;
        len -= part;
    }
    return TCK_OK;
}
