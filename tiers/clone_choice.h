/* SPDX-License-Identifier: Apache-2.0
 * Which chunks of a shard's file share their blocks with the file of an older version: those whose 128-bit hashes are
 * the same in both. A chunk is hashed only when its CRC is the one before, so if every chunk changes, nothing is. Pure.
 */
#ifndef TCK_TIERS_CLONE_CHOICE_H
#define TCK_TIERS_CLONE_CHOICE_H

#include "base/digest.h"

/* An image with the CRCs and hashes of its chunks. A hash of zeros was not made. */
struct hashed {
    uint64_t image_bytes;
    const uint32_t *crcs;
    const struct hash128 *hashes;
};

/* Whether the chunk may be the same in both, by its CRC. */
bool clone_may_be_same(const struct hashed *image, const struct hashed *base, uint32_t chunk);

/* Whether another version may share blocks after so many in a row that do, if one in `one_in` is to be whole. */
bool clone_may_share(uint32_t in_a_row, uint32_t one_in);
/* Sets a bit for each chunk that is the same in both, of bits that are 0; returns the bytes of these chunks. Images of
 * different sizes have none. */
uint64_t clone_choose(const struct hashed *image, const struct hashed *base, uint8_t *bits);

/* Chunks in a row. */
struct chunk_run {
    uint32_t first, count;
};
/* The first of them, from chunk `from` of `chunks` on, whose bits are all set, or all clear. count 0: there are none.
 */
struct chunk_run chunk_run_next(const uint8_t *bits, uint32_t chunks, uint32_t from, bool set);

#endif
