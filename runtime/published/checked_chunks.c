/* SPDX-License-Identifier: Apache-2.0
 * A chunk is read whole into a buffer of ours and checked there, so that no byte of a damaged one reaches a caller. */
#include "published/checked_chunks.h"
#include "base/bounded.h"
#include "base/progress.h"
#include "tiers/safe_fs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

tck_status_t chunks_open(struct chunks *chunks, const struct chunks_source *from, struct error *err)
{
    *chunks = (struct chunks){.from = *from};
    chunks->fds = calloc(from->manifest->file_count, sizeof(*chunks->fds));
    if (chunks->fds == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory to read %" PRIu32 " files", from->manifest->file_count);
    }
    for (uint32_t i = 0; i < from->manifest->file_count; i++) {
        chunks->fds[i] = -1;
    }
    return TCK_OK;
}

static void close_file(struct chunks *chunks, uint32_t file)
{
    if (chunks->fds[file] >= 0) {
        close(chunks->fds[file]);
        chunks->fds[file] = -1;
        chunks->open_count--;
    }
}

void chunks_close(struct chunks *chunks)
{
    for (uint32_t i = 0; chunks->fds != NULL && i < chunks->from.manifest->file_count; i++) {
        close_file(chunks, i);
    }
    free(chunks->fds);
    for (uint32_t i = 0; i < CHUNKS_KEPT; i++) {
        free(chunks->buffers[i].bytes);
    }
    *chunks = (struct chunks){0};
}

/* Files are closed in turn, not by age: they are read one after the other. */
static void make_room(struct chunks *chunks)
{
    while (chunks->open_count >= FILES_KEPT_MAX) {
        close_file(chunks, chunks->next_close);
        chunks->next_close = (chunks->next_close + 1) % chunks->from.manifest->file_count;
    }
}

/* ---- one chunk from storage ----------------------------------------------------------------------------------------
 */

/* All that the thread needs which reads it, and which may be left behind: the descriptors are its own. */
struct fetch {
    char name[MANIFEST_FILE_NAME];
    int dir_fd, fd; /* fd -1: to be opened in the directory */
    uint32_t chunk, len;
    uint8_t *bytes; /* owned */
    tck_status_t status;
    struct error error;
};

static tck_status_t fetch_bytes(struct fetch *f)
{
    uint32_t got = 0;
    while (got < f->len) {
        ssize_t rc = pread(f->fd, f->bytes + got, f->len - got, (off_t)((uint64_t)f->chunk * CHUNK_BYTES + got));
        if (rc < 0 && errno == EINTR) {
            continue;
        }
        if (rc < 0) {
            return error_set(&f->error, status_of_errno(errno), "%s: read chunk %" PRIu32 ": %m", f->name, f->chunk);
        }
        if (rc == 0) {
            return error_set(&f->error, TCK_ERR_CORRUPT, "%s ends in chunk %" PRIu32, f->name, f->chunk);
        }
        got += (uint32_t)rc;
        progress_moved();
    }
    return TCK_OK;
}

static void fetch(void *job)
{
    struct fetch *f = job;
    f->status = f->fd >= 0 ? TCK_OK : safe_fs_open(f->dir_fd, f->name, O_RDONLY, &f->fd, &f->error);
    if (f->status == TCK_OK) {
        f->status = fetch_bytes(f);
    }
}

static void drop_fetch(void *job)
{
    struct fetch *f = job;
    if (f->fd >= 0) {
        close(f->fd);
    }
    if (f->dir_fd >= 0) {
        close(f->dir_fd);
    }
    free(f->bytes);
    free(f);
}

/* Takes the buffer's memory over. NULL after an error. */
static struct fetch *new_fetch(const struct chunks *chunks, uint32_t file, uint32_t chunk, struct chunk_buffer *buffer)
{
    const struct manifest_file *of = &chunks->from.manifest->files[file];
    struct fetch *f = calloc(1, sizeof(*f));
    if (f == NULL) {
        return NULL;
    }
    *f = (struct fetch){.dir_fd = -1, .fd = -1, .chunk = chunk, .len = chunk_size(of->bytes, chunk)};
    snprintf(f->name, sizeof(f->name), "%s", of->name);
    if (chunks->fds[file] >= 0) {
        f->fd = fcntl(chunks->fds[file], F_DUPFD_CLOEXEC, 0);
    } else {
        f->dir_fd = fcntl(chunks->from.dir_fd, F_DUPFD_CLOEXEC, 0);
    }
    f->bytes = buffer->bytes == NULL ? malloc(CHUNK_BYTES) : buffer->bytes;
    buffer->bytes = NULL;
    if (f->bytes == NULL || (f->fd < 0 && f->dir_fd < 0)) {
        drop_fetch(f);
        return NULL;
    }
    return f;
}

static void keep_open(struct chunks *chunks, uint32_t file, struct fetch *f)
{
    if (chunks->fds[file] < 0 && f->fd >= 0) {
        make_room(chunks);
        chunks->fds[file] = f->fd;
        chunks->open_count++;
        f->fd = -1;
    }
}

static tck_status_t check_crc(const struct manifest_file *file, const struct fetch *f, struct error *err)
{
    uint32_t crc = crc32c(0, f->bytes, f->len);
    if (crc == file->crcs[f->chunk]) {
        return TCK_OK;
    }
    return error_set(err, TCK_ERR_CORRUPT,
                     "%s: chunk %" PRIu32 " of %" PRIu32 " has CRC %08" PRIx32 ", its manifest says %08" PRIx32,
                     file->name, f->chunk, chunk_count(file->bytes), crc, file->crcs[f->chunk]);
}

static tck_status_t fill(struct chunks *chunks, uint32_t file, uint32_t chunk, struct chunk_buffer *buffer,
                         struct error *err)
{
    const struct manifest_file *of = &chunks->from.manifest->files[file];
    struct fetch *f = new_fetch(chunks, file, chunk, buffer);
    if (f == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "%s: no memory or descriptor to read a chunk of %u bytes", of->name,
                         CHUNK_BYTES);
    }
    const struct bounded_work work = {.work = fetch, .drop = drop_fetch, .job = f};
    tck_status_t status = bounded_do(&work, chunks->from.limit_ms, err);
    if (status != TCK_OK) {
        return error_prefix(err, "%.200s/%s", chunks->from.path, of->name);
    }
    keep_open(chunks, file, f);
    status = f->status;
    if (status != TCK_OK) {
        *err = f->error;
    } else {
        status = check_crc(of, f, err);
    }
    buffer->bytes = f->bytes;
    f->bytes = NULL;
    drop_fetch(f);
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
        chunks->read_bytes += chunk_size(chunks->from.manifest->files[file].bytes, chunk);
    }
    if (status == TCK_OK) {
        *buffer = (struct chunk_buffer){buffer->bytes, file, chunk, ++chunks->clock};
        *out = buffer->bytes;
    }
    return status;
}

tck_status_t chunks_read(struct chunks *chunks, uint32_t file, uint64_t at, uint64_t len, void *to, struct error *err)
{
    const struct manifest_file *of = &chunks->from.manifest->files[file];
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
