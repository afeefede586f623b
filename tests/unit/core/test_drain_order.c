/* SPDX-License-Identifier: Apache-2.0
 * What a node writes first, in case it cannot write all. */
#include "core/drain_order.h"

#include <criterion/criterion.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void expect_order(const struct drain_place *places, const uint32_t *shards, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        cr_expect_eq(places[i].shard, shards[i], "place %zu has shard %u", i, places[i].shard);
    }
}

Test(drain_order, begins_with_what_has_the_fewest_copies_elsewhere)
{
    struct drain_place places[] = {{0, 2}, {1, 0}, {2, 7}, {3, 1}};
    const uint32_t wanted[] = {1, 3, 0, 2};
    drain_order(places, COUNT(places));
    expect_order(places, wanted, COUNT(wanted));
    cr_expect_eq(places[0].elsewhere, 0);
    cr_expect_eq(places[3].elsewhere, 7);
}

/* So each attempt writes them in the same order, and neighbors of one rank stay together. */
Test(drain_order, keeps_the_order_of_shards_among_equal_ones)
{
    struct drain_place places[] = {{5, 1}, {2, 0}, {4, 1}, {9, 0}, {3, 1}, {0, 0}, {1, UINT32_MAX}};
    const uint32_t wanted[] = {0, 2, 9, 3, 4, 5, 1};
    drain_order(places, COUNT(places));
    expect_order(places, wanted, COUNT(wanted));
}

/* However early it is cut off, nothing that is left has fewer copies than anything that was written. */
Test(drain_order, every_prefix_has_the_fewest_copies)
{
    struct drain_place places[64];
    uint32_t seed = 1;
    for (uint32_t i = 0; i < COUNT(places); i++) {
        seed = seed * 1103515245 + 12345;
        places[i] = (struct drain_place){.shard = i, .elsewhere = seed >> 29};
    }
    drain_order(places, COUNT(places));
    bool seen[COUNT(places)] = {false};
    for (uint32_t i = 0; i < COUNT(places); i++) {
        cr_assert(i == 0 || places[i - 1].elsewhere <= places[i].elsewhere);
        cr_assert_not(seen[places[i].shard], "shard %u comes twice", places[i].shard);
        seen[places[i].shard] = true;
    }
}

Test(drain_order, a_node_without_a_part_has_nothing_to_order)
{
    struct drain_place place = {3, 4};
    drain_order(NULL, 0);
    drain_order(&place, 1);
    cr_expect_eq(place.shard, 3);
}
