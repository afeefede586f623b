/* SPDX-License-Identifier: Apache-2.0
 * Intersections of boxes: each element is read once, from its own position, for any grid that a tensor was saved in and
 * any requested box. */
#include "recovery/reshard.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define TRIES     3000
#define EDGE_MAX  7
#define BOXES_MAX 256

static uint64_t seed;

static uint64_t chance(uint64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

/* The number of an element in C order. */
static uint64_t number_of(const uint64_t *at, const uint64_t *shape, uint32_t ndim)
{
    uint64_t number = 0;
    for (uint32_t d = 0; d < ndim; d++) {
        number = number * shape[d] + at[d];
    }
    return number;
}

/* The number in the whole tensor of the element at index i of a box's own storage. */
static uint64_t element(const struct box *box, const uint64_t *shape, uint64_t i)
{
    uint64_t at[TCK_MAX_NDIM];
    for (uint32_t d = box->ndim; d-- > 0;) {
        at[d] = box->at[d] + i % box->size[d];
        i /= box->size[d];
    }
    return number_of(at, shape, box->ndim);
}

static uint32_t *stored(const struct box *box, const uint64_t *shape)
{
    uint64_t count = box_count(box);
    uint32_t *data = malloc((count + 1) * sizeof(*data));
    for (uint64_t i = 0; i < count; i++) {
        data[i] = (uint32_t)element(box, shape, i);
    }
    return data;
}

/* A grid with random cuts in each dimension; some of its cells may be empty. */
static uint32_t random_grid(const uint64_t *shape, uint32_t ndim, struct box *out)
{
    uint64_t cuts[TCK_MAX_NDIM][4];
    uint32_t parts[TCK_MAX_NDIM], count = 1;
    for (uint32_t d = 0; d < ndim; d++) {
        parts[d] = 1 + (uint32_t)chance(3);
        cuts[d][0] = 0;
        for (uint32_t k = 1; k < parts[d]; k++) {
            cuts[d][k] = cuts[d][k - 1] + chance(shape[d] - cuts[d][k - 1] + 1);
        }
        cuts[d][parts[d]] = shape[d];
        count *= parts[d];
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t rest = i;
        out[i].ndim = ndim;
        for (uint32_t d = ndim; d-- > 0;) {
            uint32_t k = rest % parts[d];
            rest /= parts[d];
            out[i].at[d] = cuts[d][k];
            out[i].size[d] = cuts[d][k + 1] - cuts[d][k];
        }
    }
    return count;
}

static struct box random_box(const uint64_t *shape, uint32_t ndim)
{
    struct box box = {.ndim = ndim};
    for (uint32_t d = 0; d < ndim; d++) {
        box.at[d] = chance(shape[d] + 1);
        box.size[d] = chance(shape[d] - box.at[d] + 1);
    }
    return box;
}

/* Copies by the plan as a reader does. Returns the number of elements written. */
static uint64_t carry_out(const struct reshard *plan, const struct box *have, const struct box *want,
                          const uint64_t *shape, uint32_t *to)
{
    uint64_t written = 0;
    for (uint32_t i = 0; i < plan->count; i++) {
        const struct box *from = &have[plan->pieces[i].have];
        struct runs runs = runs_of(&plan->pieces[i].box, from, want, sizeof(*to));
        uint32_t *data = stored(from, shape);
        uint64_t from_byte, to_byte;
        while (runs_next(&runs, &from_byte, &to_byte)) {
            cr_assert_leq(from_byte + runs.bytes, box_count(from) * sizeof(*data));
            cr_assert_leq(to_byte + runs.bytes, box_count(want) * sizeof(*to));
            memcpy((char *)to + to_byte, (char *)data + from_byte, runs.bytes);
            written += runs.bytes / sizeof(*to);
        }
        free(data);
    }
    return written;
}

static void assert_right(const struct box *want, const uint64_t *shape, const struct box *have, uint32_t count)
{
    struct reshard plan;
    struct error err;
    cr_assert_eq(reshard_find(want, have, count, &plan, &err), TCK_OK, "%s", err.text);
    cr_assert(plan.covered);
    uint32_t *expected = stored(want, shape), *got = calloc(box_count(want) + 1, sizeof(*got));
    cr_assert_eq(carry_out(&plan, have, want, shape, got), box_count(want));
    cr_assert_arr_eq(got, expected, box_count(want) * sizeof(*got));
    free(expected);
    free(got);
    reshard_free(&plan);
}

static uint32_t random_shape(uint64_t *shape)
{
    uint32_t ndim = (uint32_t)chance(5);
    for (uint32_t d = 0; d < ndim; d++) {
        shape[d] = 1 + chance(EDGE_MAX);
    }
    return ndim;
}

Test(reshard, any_box_is_read_correctly_from_any_grid)
{
    for (seed = 1; seed <= TRIES; seed++) {
        uint64_t start = seed, shape[TCK_MAX_NDIM] = {0};
        struct box have[BOXES_MAX];
        uint32_t ndim = random_shape(shape), count = random_grid(shape, ndim, have);
        struct box want = random_box(shape, ndim);
        assert_right(&want, shape, have, count);
        seed = start;
    }
}

Test(reshard, a_new_grid_is_read_correctly_from_an_old_one)
{
    for (seed = 1; seed <= TRIES; seed++) {
        uint64_t start = seed, shape[TCK_MAX_NDIM] = {0};
        struct box have[BOXES_MAX], wanted[BOXES_MAX];
        uint32_t ndim = random_shape(shape), have_count = random_grid(shape, ndim, have);
        uint32_t want_count = random_grid(shape, ndim, wanted);
        for (uint32_t i = 0; i < want_count; i++) {
            assert_right(&wanted[i], shape, have, have_count);
        }
        seed = start;
    }
}

Test(reshard, pieces_that_overlap_are_read_once)
{
    for (seed = 1; seed <= TRIES; seed++) {
        uint64_t start = seed, shape[TCK_MAX_NDIM] = {0};
        struct box have[BOXES_MAX];
        uint32_t ndim = random_shape(shape), overlapping = (uint32_t)chance(6);
        for (uint32_t i = 0; i < overlapping; i++) {
            have[i] = random_box(shape, ndim);
        }
        uint32_t count = overlapping + random_grid(shape, ndim, have + overlapping);
        struct box want = random_box(shape, ndim);
        assert_right(&want, shape, have, count);
        seed = start;
    }
}

/* Whether this element of want is in any box. */
static bool is_held(const struct box *want, uint64_t i, const struct box *have, uint32_t count)
{
    struct box one = {.ndim = want->ndim}, both;
    for (uint32_t d = want->ndim; d-- > 0;) {
        one.at[d] = want->at[d] + i % want->size[d];
        one.size[d] = 1;
        i /= want->size[d];
    }
    for (uint32_t k = 0; k < count; k++) {
        if (box_intersect(&one, &have[k], &both)) {
            return true;
        }
    }
    return false;
}

Test(reshard, elements_that_no_box_contains_are_reported_missing)
{
    uint32_t holes = 0;
    for (seed = 1; seed <= TRIES; seed++) {
        uint64_t start = seed, shape[TCK_MAX_NDIM] = {0};
        struct box have[BOXES_MAX], both;
        uint32_t ndim = random_shape(shape), count = random_grid(shape, ndim, have) - 1; /* without the last box */
        struct box want = random_box(shape, ndim);
        struct reshard plan;
        bool all_held = true;
        for (uint64_t i = 0; i < box_count(&want); i++) {
            all_held = all_held && is_held(&want, i, have, count);
        }
        cr_assert_eq(reshard_find(&want, have, count, &plan, NULL), TCK_OK);
        cr_assert_eq(plan.covered, all_held);
        for (uint32_t k = 0; k < count && !plan.covered; k++) {
            cr_assert_not(box_intersect(&plan.missing, &have[k], &both));
        }
        cr_assert(plan.covered || box_intersect(&plan.missing, &want, &both));
        holes += !plan.covered;
        reshard_free(&plan);
        seed = start;
    }
    cr_assert_gt(holes, 100);
}

Test(reshard, rows_with_the_same_position_are_one_run)
{
    const struct box want = {.ndim = 2, .at = {4, 0}, .size = {2, 10}}, have = {.ndim = 2, .size = {8, 10}};
    struct runs runs = runs_of(&want, &have, &want, 4);
    uint64_t from = 0, to = 1;
    cr_assert(runs_next(&runs, &from, &to));
    cr_assert_eq(runs.bytes, 80);
    cr_assert_eq(from, 160);
    cr_assert_eq(to, 0);
    cr_assert_not(runs_next(&runs, &from, &to));
}

Test(reshard, a_scalar_is_one_element)
{
    const struct box scalar = {0};
    struct reshard plan;
    cr_assert_eq(reshard_find(&scalar, &scalar, 1, &plan, NULL), TCK_OK);
    cr_assert(plan.covered && plan.count == 1);
    reshard_free(&plan);
    cr_assert_eq(reshard_find(&scalar, &scalar, 0, &plan, NULL), TCK_OK);
    cr_assert_not(plan.covered);
}

/* Two combs at right angles produce one part for every pair of teeth. */
Test(reshard, more_parts_than_any_sharding_produces_are_refused)
{
    enum { TEETH = 2000 };
    struct box want = {.ndim = 2, .size = {4 * TEETH, 4 * TEETH}}, *have = calloc(2 * TEETH, sizeof(*have));
    struct reshard plan;
    struct error err = {0};
    for (uint32_t i = 0; i < TEETH; i++) {
        have[i] = (struct box){.ndim = 2, .at = {2 * i, 0}, .size = {1, 4 * TEETH}};
        have[TEETH + i] = (struct box){.ndim = 2, .at = {0, 2 * i}, .size = {4 * TEETH, 1}};
    }
    cr_assert_eq(reshard_find(&want, have, 2 * TEETH, &plan, &err), TCK_ERR_UNSUPPORTED);
    free(have);
}
