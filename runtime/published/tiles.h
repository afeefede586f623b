/* SPDX-License-Identifier: Apache-2.0
 * Divides a whole tensor into boxes of bounded size, each contiguous in it, in C order. Pure. */
#ifndef TCK_READER_SLABS_H
#define TCK_READER_SLABS_H

#include "recovery/reshard.h"

struct tiles {
    uint64_t shape[TCK_MAX_NDIM];
    struct box box;  /* the next one */
    uint32_t split;  /* the dimension that is cut; the ones before it are iterated over one by one */
    uint64_t length; /* of a cut */
    bool done;
};

/* The boxes have at most limit elements each; limit is at least 1. */
struct tiles tiles_of(const uint64_t *shape, uint32_t ndim, uint64_t limit);
/* False after the last. */
bool tiles_next(struct tiles *slabs, struct box *out);

#endif
