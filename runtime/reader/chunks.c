/* SPDX-License-Identifier: Apache-2.0
 * A chunk is read whole into a buffer of ours and checked there, so that no byte of a damaged one reaches a caller. */
#include "reader/chunks.h"
#include "tiers/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

tck_status_t chunks_open(struct chunks *chunks, int dir_fd, const struct manifest *manifest, struct error *err)
{
    *chunks = (struct chunks){.dir_fd = dir_fd, .manifest = manifest};
    chunks->fds = calloc(manifest->file_count, sizeof(*chunks->fds));
    if (chunks->fds == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory to read %" PRIu32 " files", manifest->file_count);
    }
    for (uint32_t i = 0; i < manifest->file_count; i++) {
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
    for (uint32_t i = 0; chunks->fds != NULL && i < chunks->manifest->file_count; i++) {
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
        chunks->next_close = (chunks->next_close + 1) % chunks->manifest->file_count;
    }
}

static tck_status_t open_file(struct chunks *chunks, uint32_t i, struct error *err)
{
    const struct manifest_file *file = &chunks->manifest->files[i];
    int fd = -1;
    if (chunks->fds[i] >= 0) {
        return TCK_OK;
    }
    make_room(chunks);
    tck_status_t status = beneath_open(chunks->dir_fd, file->name, O_RDONLY, &fd, err);
    if (status == TCK_OK) {
        chunks->fds[i] = fd;
        chunks->open_count++;
    }
    return status;
}

static tck_status_t fill(int fd, const struct manifest_file *file, uint32_t chunk, uint8_t *to, struct error *err)
{
    uint32_t len = chunk_size(file->bytes, chunk), got = 0;
    while (got < len) {
        ssize_t rc = pread(fd, to + got, len - got, (off_t)((uint64_t)chunk * CHUNK_BYTES + got));
        if (rc < 0 && errno == EINTR) {
            continue;
        }
        if (rc < 0) {
            return error_set(err, status_of_errno(errno), "%s: read chunk %" PRIu32 ": %m", file->name, chunk);
        }
        if (rc == 0) {
            return error_set(err, TCK_ERR_CORRUPT, "%s ends in chunk %" PRIu32, file->name, chunk);
        }
        got += (uint32_t)rc;
    }
    uint32_t crc = crc32c(0, to, len);
    if (crc != file->crcs[chunk]) {
        return error_set(err, TCK_ERR_CORRUPT,
                         "%s: chunk %" PRIu32 " of %" PRIu32 " has CRC %08" PRIx32 ", its manifest says %08" PRIx32,
                         file->name, chunk, chunk_count(file->bytes), crc, file->crcs[chunk]);
    }
    return TCK_OK;
}

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
        if (buffer->bytes == NULL && (buffer->bytes = malloc(CHUNK_BYTES)) == NULL) {
            return error_set(err, TCK_ERR_NOMEM, "no memory to read a chunk of %u bytes", CHUNK_BYTES);
        }
        status = open_file(chunks, file, err);
        if (status == TCK_OK) {
            status = fill(chunks->fds[file], &chunks->manifest->files[file], chunk, buffer->bytes, err);
        }
        chunks->read_bytes += chunk_size(chunks->manifest->files[file].bytes, chunk);
    }
    if (status == TCK_OK) {
        *buffer = (struct chunk_buffer){buffer->bytes, file, chunk, ++chunks->clock};
        *out = buffer->bytes;
    }
    return status;
}

tck_status_t chunks_read(struct chunks *chunks, uint32_t file, uint64_t at, uint64_t len, void *to, struct error *err)
{
    const struct manifest_file *of = &chunks->manifest->files[file];
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
