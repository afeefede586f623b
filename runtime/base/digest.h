/* SPDX-License-Identifier: Apache-2.0
 * Digests of a shard image: one CRC32C per chunk (Castagnoli polynomial, RFC 3720, by ISA-L), and a root over them:
 * XXH3-128 of the image length (u64 LE) and all chunk CRCs (u32 LE each). */
#ifndef TCK_BASE_DIGEST_H
#define TCK_BASE_DIGEST_H

#include "base/version.h"

#define CHUNK_BYTES (4u << 20)

static inline uint32_t chunk_count(uint64_t image_bytes)
{
    return (uint32_t)((image_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES);
}

/* Bytes in chunk i of an image. */
static inline uint32_t chunk_size(uint64_t image_bytes, uint32_t i)
{
    uint64_t left = image_bytes - (uint64_t)i * CHUNK_BYTES;
    return left < CHUNK_BYTES ? (uint32_t)left : CHUNK_BYTES;
}

/* The usual CRC32C: of "123456789" it is 0xE3069283. crc_start is 0 to begin, or an earlier result to continue. */
uint32_t crc32c(uint32_t crc_start, const void *data, size_t len);
/* The CRC32C of two pieces in a row, of which the second one has so many bytes. */
uint32_t crc32c_join(uint32_t first, uint32_t second, uint64_t second_bytes);
/* Of count chunks of an image from `begin` on, made of their CRCs. */
uint32_t crc32c_of_chunks(const uint32_t *crcs, uint64_t image_bytes, uint32_t begin, uint32_t count);
/* Of chunk i of an image. */
uint32_t chunk_crc(const void *image, uint64_t image_bytes, uint32_t i);
struct hash128 hash128_of(const void *data, size_t len);

/* crcs holds chunk_count(image_bytes) entries. */
struct hash128 digest_root(const uint32_t *crcs, uint64_t image_bytes);
/* Fills crcs from the image and returns the root. */
struct hash128 digest_image(const void *image, uint64_t image_bytes, uint32_t *crcs);

#endif
