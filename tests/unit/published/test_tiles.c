/* SPDX-License-Identifier: Apache-2.0
 * The slabs together are the tensor, in order, and each one is within the limit. */
#include "published/tiles.h"

#include <criterion/criterion.h>

#define TRIES 5000

static uint64_t seed;

static uint64_t chance(uint64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

/* The number of the first element of a box in its tensor. */
static uint64_t first_of(const struct box *box, const uint64_t *shape)
{
    uint64_t number = 0;
    for (uint32_t d = 0; d < box->ndim; d++) {
        number = number * shape[d] + box->at[d];
    }
    return number;
}

/* Whether the box is contiguous in the tensor. */
static bool is_one_run(const struct box *box, const uint64_t *shape)
{
    struct box whole = {.ndim = box->ndim};
    for (uint32_t d = 0; d < box->ndim; d++) {
        whole.size[d] = shape[d];
    }
    struct runs runs = runs_of(box, &whole, box, 1);
    uint64_t from, to, bytes = 0, next = first_of(box, shape);
    while (runs_next(&runs, &from, &to)) {
        if (from != next) {
            return false;
        }
        next += runs.bytes;
        bytes += runs.bytes;
    }
    return bytes == box_count(box);
}

Test(slabs, together_are_the_tensor_in_order)
{
    for (uint64_t try = 1; try <= TRIES; try++) {
        uint64_t shape[TCK_MAX_NDIM], limit, total = 1, done = 0;
        struct box box;
        seed = try;
        uint32_t ndim = (uint32_t)chance(5);
        for (uint32_t d = 0; d < ndim; d++) {
            shape[d] = chance(12);
            total *= shape[d];
        }
        limit = 1 + chance(60);
        struct tiles slabs = tiles_of(shape, ndim, limit);
        while (tiles_next(&slabs, &box)) {
            cr_assert_eq(first_of(&box, shape), done);
            cr_assert(box_count(&box) >= 1 && box_count(&box) <= limit);
            cr_assert(is_one_run(&box, shape));
            done += box_count(&box);
        }
        cr_assert_eq(done, total);
    }
}

Test(slabs, do_not_split_a_tensor_that_fits)
{
    const uint64_t shape[] = {4, 5, 6};
    struct tiles slabs = tiles_of(shape, 3, 120);
    struct box box;
    cr_assert(tiles_next(&slabs, &box));
    cr_assert_eq(box_count(&box), 120);
    cr_assert_not(tiles_next(&slabs, &box));
}
