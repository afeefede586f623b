/* SPDX-License-Identifier: Apache-2.0
 * The tree of a bootstrap. Every subtree is a contiguous range of ranks whose first one is its root, so ranks of one
 * node, which are usually consecutive, are mostly connected among themselves. Pure. */
#ifndef TCK_CLIENT_BOOTSTRAP_SHAPE_H
#define TCK_CLIENT_BOOTSTRAP_SHAPE_H

#include <stdint.h>

#define BOOTSTRAP_FANOUT 8

struct rank_range {
    uint32_t first, end;
};

struct bootstrap_shape {
    uint32_t parent; /* of rank 0: 0 */
    struct rank_range subtree;
    uint32_t child_count;
    struct rank_range children[BOOTSTRAP_FANOUT];
};

/* The place of a rank of the world. */
struct bootstrap_shape bootstrap_shape(uint32_t rank, uint32_t world_size);

#endif
