/* SPDX-License-Identifier: Apache-2.0
 * A request for a segment, for tests. */
#ifndef TCK_TESTS_WISH_H
#define TCK_TESTS_WISH_H

#include "tiers/memory.h"

static inline struct segment_wish wish_of(struct hash128 shard, uint64_t bytes, uint32_t slots, uint32_t used)
{
    return (struct segment_wish){.shard = shard, .image_bytes = bytes, .slot_count = slots, .used = used};
}

static inline tck_status_t add_segment(struct memory *memory, struct segment_wish wish, struct segment **out,
                                       struct error *err)
{
    return memory_add(memory, &wish, out, err);
}

static inline uint64_t needed_bytes(const struct memory *memory, struct segment_wish wish)
{
    return memory_needed(memory, &wish);
}

#endif
