/* SPDX-License-Identifier: Apache-2.0
 * What the coordinator logs about the roots that nodes report for shared shards. */
#include "agent/driver/twins.h"

#include <criterion/criterion.h>

#define NODES  3
#define SHARDS 2

static struct node_info nodes[NODES] = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
static struct world_shard shards[SHARDS] = {{.id = {1, 1}}, {.id = {2, 1}}};
static uint32_t owners[] = {0, 1, 2, 0, 1, 2};
static struct shard_placement placed[SHARDS] = {{.owner_count = NODES}, {.owner_count = NODES, .first_owner = NODES}};
static struct term_context f;

static void begin(void)
{
    f.world = (struct world){.nodes = nodes, .node_count = NODES, .shards = shards, .shard_count = SHARDS};
    f.placement = (struct placement){.shard_count = SHARDS, .shards = placed, .owners = owners};
}

static void end(uint64_t divergences)
{
    cr_assert_eq(f.divergences, divergences, "%lu", (unsigned long)f.divergences);
    twins_free(&f);
}

static void report(uint32_t node, uint64_t step, uint32_t shard, uint64_t root)
{
    struct wire_root roots[] = {{.shard = shard, .root = {root, 9}}};
    twins_compare(&f, node, &(struct wire_roots){.version = {1, step}, .count = 1, .roots = roots});
}

/* The node's root of each shard. */
static void ready(uint32_t node, uint64_t step, uint64_t first, uint64_t second)
{
    struct wire_root roots[SHARDS] = {{.shard = 0, .root = {first, 9}}, {.shard = 1, .root = {second, 9}}};
    twins_compare(&f, node, &(struct wire_roots){.version = {1, step}, .count = SHARDS, .roots = roots});
}

Test(twins, logs_nothing_about_equal_twins)
{
    begin();
    for (uint32_t n = 0; n < NODES; n++) {
        ready(n, 10, 5, 6);
        ready(n, 11, 7, 8);
    }
    end(0);
}

Test(twins, logs_each_node_that_differs_from_the_first)
{
    begin();
    ready(0, 10, 5, 6);
    ready(1, 10, 5, 77);
    ready(2, 10, 5, 6);
    end(1);
}

Test(twins, logs_a_difference_once_however_often_a_node_reports)
{
    begin();
    ready(0, 10, 5, 6);
    for (int i = 0; i < 5; i++) {
        ready(1, 10, 77, 6);
        ready(0, 10, 5, 6);
    }
    end(1);
}

Test(twins, takes_the_roots_of_a_nodes_ranks_as_they_come)
{
    begin();
    report(0, 10, 1, 6);
    report(1, 10, 1, 77);
    cr_assert_eq(f.divergences, 1, "before anybody is ready");
    report(0, 10, 0, 5);
    ready(0, 10, 5, 6);
    ready(1, 10, 5, 77);
    ready(2, 10, 55, 6);
    end(2);
}

Test(twins, ignores_a_shard_of_a_node_that_does_not_own_it)
{
    begin();
    placed[1].owner_count = 2;
    report(0, 10, 1, 6);
    report(2, 10, 1, 77);
    report(1, 10, SHARDS, 77);
    placed[1].owner_count = NODES;
    end(0);
}

Test(twins, compares_nodes_that_are_some_versions_apart)
{
    begin();
    for (uint64_t step = 10; step < 30; step++) {
        ready(0, step, 5, 6);
        ready(1, step - 2, 5, step == 20 ? 77 : 6);
    }
    end(1);
}

Test(twins, compares_no_roots_of_different_versions)
{
    begin();
    for (uint64_t step = 10; step < 30; step++) {
        ready(0, step, step, step);
        ready(1, step + 1, step + 1, step + 1);
    }
    end(0);
}

Test(twins, ignores_a_version_that_is_too_old)
{
    begin();
    for (uint64_t step = 10; step < 30; step++) {
        ready(0, step, 5, 6);
    }
    ready(1, 10, 77, 78);
    ready(1, 29, 5, 6);
    end(0);
}
