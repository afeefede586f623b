/* SPDX-License-Identifier: Apache-2.0
 * Reads the files of one published version. All bytes that it returns come from a chunk that was read completely and
 * whose CRC matches the manifest. The last few chunks are cached. */
#ifndef TCK_READER_CHUNKS_H
#define TCK_READER_CHUNKS_H

#include "tiers/folder.h"
#include "tiers/manifest.h"

#define CHUNKS_KEPT    4
#define FILES_KEPT_MAX 64 /* open at a time */

struct chunk_buffer {
    uint8_t *bytes; /* owned; NULL: not used yet */
    uint32_t file, chunk;
    uint64_t used; /* when it was last used; 0: holds nothing */
};

struct chunks_source {
    const struct folder *dir; /* this and the rest belong to the caller */
    const char *path;         /* of that folder */
    const struct manifest *manifest;
    uint32_t limit_ms; /* if reading a chunk takes longer, it fails with TCK_ERR_TIMEDOUT */
};

struct chunks {
    struct chunks_source from;
    struct folder_file *files; /* each one, and .index; not all are open */
    uint32_t open_count, next_close;
    struct chunk_buffer buffers[CHUNKS_KEPT];
    uint64_t clock;
    uint64_t read_bytes; /* from storage */
};

must_check tck_status_t chunks_open(struct chunks *chunks, const struct chunks_source *from, struct error *err);
void chunks_close(struct chunks *chunks);
/* The number of .index, behind those of the files in the manifest; only if the version has one. */
static inline uint32_t chunks_index(const struct chunks *chunks)
{
    return chunks->from.manifest->file_count;
}
/* Copies len bytes from offset at of a file. Every error names the file. */
must_check tck_status_t chunks_read(struct chunks *chunks, uint32_t file, uint64_t at, uint64_t len, void *to,
                                    struct error *err);

#endif
