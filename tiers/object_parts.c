/* SPDX-License-Identifier: Apache-2.0
 * See object_parts.h. */
#include "tiers/object_parts.h"

#include "base/digest.h"

#define PART_CHUNKS 4u     /* 16 MiB; all but the last part need at least 5 MiB */
#define PARTS_MAX   10000u /* of one object */

struct object_parts object_parts_of(uint64_t bytes)
{
    uint32_t chunks = chunk_count(bytes), least = (chunks + PARTS_MAX - 1) / PARTS_MAX;
    struct object_parts parts = {.bytes = bytes, .chunks_each = least > PART_CHUNKS ? least : PART_CHUNKS};
    parts.count = (chunks + parts.chunks_each - 1) / parts.chunks_each;
    return parts;
}

struct object_slice object_parts_slice(const struct object_parts *parts, uint32_t i)
{
    uint32_t chunks = chunk_count(parts->bytes);
    struct object_slice slice = {.first = i * parts->chunks_each};
    slice.chunks = chunks - slice.first < parts->chunks_each ? chunks - slice.first : parts->chunks_each;
    slice.begin = (uint64_t)slice.first * CHUNK_BYTES;
    uint64_t end = slice.begin + (uint64_t)slice.chunks * CHUNK_BYTES;
    slice.bytes = (end < parts->bytes ? end : parts->bytes) - slice.begin;
    return slice;
}
