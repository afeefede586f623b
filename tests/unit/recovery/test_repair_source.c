/* SPDX-License-Identifier: Apache-2.0
 * Where a copy that is missing is fetched from. */
#include "recovery/repair_source.h"

#include <criterion/criterion.h>

/* Shard 1 belongs to nodes 2 and 4, and node 5 holds a further copy. */
static uint32_t owners[] = {0, 2, 4};
static struct shard_placement shards[] = {
    {.source = 0, .owner_count = 1},
    {.source = 2, .first_owner = 1, .owner_count = 2, .holder_count = 1, .holders = {5}}};
static const struct placement placement = {.shard_count = 2, .shards = shards, .owners = owners};

static void expect(uint32_t self, uint32_t place, enum source_kind kind, uint32_t node)
{
    struct repair_source source;
    cr_assert(repair_source_at(&placement, 1, self, place, &source));
    cr_assert_eq(source.kind, kind);
    cr_assert_eq(source.node, node);
}

Test(repair_source, an_owner_asks_its_twin_then_the_holder_then_storage)
{
    expect(2, 0, SOURCE_TWIN, 4);
    expect(2, 1, SOURCE_PEER, 5);
    expect(2, 2, SOURCE_STORAGE, NONE32);
}

Test(repair_source, a_holder_asks_the_owners_in_order)
{
    expect(5, 0, SOURCE_TWIN, 2);
    expect(5, 1, SOURCE_TWIN, 4);
    expect(5, 2, SOURCE_STORAGE, NONE32);
}

Test(repair_source, there_is_no_place_past_storage)
{
    struct repair_source source;
    cr_assert_not(repair_source_at(&placement, 1, 2, 3, &source));
    cr_assert_not(repair_source_at(&placement, 0, 0, 1, &source));
}

Test(repair_source, a_shard_that_nobody_else_has_comes_from_storage)
{
    struct repair_source source;
    cr_assert(repair_source_at(&placement, 0, 0, 0, &source));
    cr_assert_eq(source.kind, SOURCE_STORAGE);
}
