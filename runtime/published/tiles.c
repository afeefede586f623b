/* SPDX-License-Identifier: Apache-2.0
 * The cut is made in the outermost dimension whose inner dimensions fit into one tile. */
#include "published/tiles.h"

#include <string.h>

struct tiles tiles_of(const uint64_t *shape, uint32_t ndim, uint64_t limit)
{
    struct tiles slabs = {.box = {.ndim = ndim}, .split = 0, .length = 1};
    uint64_t inside = 1;
    uint32_t d = ndim;
    memcpy(slabs.shape, shape, ndim * sizeof(*shape));
    memcpy(slabs.box.size, shape, ndim * sizeof(*shape));
    slabs.done = box_count(&slabs.box) == 0;
    if (slabs.done || ndim == 0) {
        return slabs;
    }
    while (d > 1 && shape[d - 1] <= limit / inside) {
        inside *= shape[--d];
    }
    slabs.split = d - 1;
    slabs.length = shape[d - 1] < limit / inside ? shape[d - 1] : limit / inside;
    for (uint32_t k = 0; k < slabs.split; k++) {
        slabs.box.size[k] = 1;
    }
    slabs.box.size[slabs.split] = slabs.length;
    return slabs;
}

/* Moves to the next cut, or to the first cut at the next place in the outer dimensions. */
static void step(struct tiles *slabs)
{
    struct box *box = &slabs->box;
    uint32_t d = slabs->split;
    box->at[d] += box->size[d];
    while (d > 0 && box->at[d] == slabs->shape[d]) {
        box->at[d--] = 0;
        box->at[d]++;
    }
    slabs->done = box->at[0] == slabs->shape[0];
    uint64_t left = slabs->shape[slabs->split] - box->at[slabs->split];
    box->size[slabs->split] = left < slabs->length ? left : slabs->length;
}

bool tiles_next(struct tiles *slabs, struct box *out)
{
    if (slabs->done) {
        return false;
    }
    *out = slabs->box;
    if (slabs->box.ndim == 0) {
        slabs->done = true;
    } else {
        step(slabs);
    }
    return true;
}
