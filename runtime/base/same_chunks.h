/* SPDX-License-Identifier: Apache-2.0
 * Which chunks are the same in two images of one size, as one bit per chunk. Chunks with different CRCs differ; those
 * with equal ones are compared byte by byte, so that two versions never count as equal by the chance of a CRC. */
#ifndef TCK_BASE_SAME_CHUNKS_H
#define TCK_BASE_SAME_CHUNKS_H

#include "base/digest.h"

#include <stdbool.h>
#include <stddef.h>

static inline uint32_t bits_bytes(uint32_t count)
{
    return count / 8 + (count % 8 != 0);
}

static inline bool bit_is_set(const uint8_t *bits, uint32_t i)
{
    return (bits[i / 8] >> i % 8 & 1) != 0;
}

static inline void bit_set(uint8_t *bits, uint32_t i)
{
    bits[i / 8] |= (uint8_t)(1u << i % 8);
}

static inline void bit_clear(uint8_t *bits, uint32_t i)
{
    bits[i / 8] &= (uint8_t) ~(1u << i % 8);
}

/* An image with its table of CRCs. */
struct digested {
    const uint8_t *image;
    const uint32_t *crcs;
};

/* Whether the two have a chunk of the same CRC. Reads no image. */
bool same_chunks_possible(const struct digested *a, const struct digested *b, uint64_t image_bytes);
/* Compares so many chunks from the first one on (as far as there are so many, and first is at most their number). Sets
 * a bit for each that is the same in both, of bits that are 0; returns the bytes of these chunks. The images may not
 * change meanwhile. */
uint64_t same_chunks(const struct digested *a, const struct digested *b, uint64_t image_bytes, uint32_t first,
                     uint32_t count, uint8_t *bits);

#endif
