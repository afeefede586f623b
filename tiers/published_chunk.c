/* SPDX-License-Identifier: Apache-2.0
 * See published_chunk.h. */
#include "tiers/published_chunk.h"

#include "base/digest.h"

#include <inttypes.h>
#include <stdio.h>

struct published_chunk published_chunk_of(const struct manifest_file *file, uint32_t index)
{
    struct published_chunk chunk = {.index = index,
                                    .count = chunk_count(file->bytes),
                                    .bytes = chunk_size(file->bytes, index),
                                    .crc = file->crcs[index]};
    snprintf(chunk.file, sizeof(chunk.file), "%s", file->name);
    return chunk;
}

tck_status_t published_chunk_fetch(const struct folder_file *file, const struct published_chunk *chunk, uint8_t *to,
                                   struct error *err)
{
    struct error why;
    tck_status_t status = folder_file_read(file, (uint64_t)chunk->index * CHUNK_BYTES, to, chunk->bytes, &why);
    if (status == TCK_ERR_CORRUPT) {
        return error_set(err, status, "%s ends in chunk %" PRIu32, chunk->file, chunk->index);
    }
    return status == TCK_OK
               ? TCK_OK
               : error_set(err, status, "%s: read chunk %" PRIu32 ": %s", chunk->file, chunk->index, why.text);
}

tck_status_t published_chunk_check(const struct published_chunk *chunk, uint32_t crc, struct error *err)
{
    if (crc == chunk->crc) {
        return TCK_OK;
    }
    return error_set(err, TCK_ERR_CORRUPT,
                     "%s: chunk %" PRIu32 " of %" PRIu32 " has CRC %08" PRIx32 ", its manifest says %08" PRIx32,
                     chunk->file, chunk->index, chunk->count, crc, chunk->crc);
}

tck_status_t published_chunk_read(const struct folder_file *file, const struct published_chunk *chunk, uint8_t *to,
                                  struct error *err)
{
    tck_status_t status = published_chunk_fetch(file, chunk, to, err);
    return status == TCK_OK ? published_chunk_check(chunk, crc32c(0, to, chunk->bytes), err) : status;
}
