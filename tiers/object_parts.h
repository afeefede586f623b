/* SPDX-License-Identifier: Apache-2.0
 * How a shard file is divided into the parts of an upload: whole chunks, so that the digests of chunks give each part
 * its checksum. Pure. */
#ifndef TCK_TIERS_OBJECT_PARTS_H
#define TCK_TIERS_OBJECT_PARTS_H

#include <stdint.h>

struct object_parts {
    uint64_t bytes;       /* of the file */
    uint32_t chunks_each; /* the last part may have fewer */
    uint32_t count;
};

struct object_slice {
    uint32_t first, chunks;
    uint64_t begin, bytes;
};

struct object_parts object_parts_of(uint64_t bytes);
/* Part i, counted from 0. */
struct object_slice object_parts_slice(const struct object_parts *parts, uint32_t i);

#endif
