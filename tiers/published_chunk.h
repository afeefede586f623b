/* SPDX-License-Identifier: Apache-2.0
 * One chunk of a file of a published version. A chunk is returned only if it was read whole and its CRC matches the
 * manifest. Errors as in published_versions.h. */
#ifndef TCK_TIERS_PUBLISHED_CHUNK_H
#define TCK_TIERS_PUBLISHED_CHUNK_H

#include "tiers/folder.h"
#include "tiers/manifest.h"

/* All that is needed to read the chunk, so that the manifest may be freed. */
struct published_chunk {
    char file[MANIFEST_FILE_NAME];
    uint32_t index, count; /* of all chunks of the file */
    uint32_t bytes, crc;
};

struct published_chunk published_chunk_of(const struct manifest_file *file, uint32_t index);
/* Reads from an open file into `to`, which has room for chunk->bytes. Blocking. */
must_check tck_status_t published_chunk_read(const struct folder_file *file, const struct published_chunk *chunk,
                                             uint8_t *to, struct error *err);
/* The same without the check; and the check alone. */
must_check tck_status_t published_chunk_fetch(const struct folder_file *file, const struct published_chunk *chunk,
                                              uint8_t *to, struct error *err);
must_check tck_status_t published_chunk_check(const struct published_chunk *chunk, uint32_t crc, struct error *err);

#endif
