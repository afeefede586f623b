/* SPDX-License-Identifier: Apache-2.0
 * Beside which processors the slots of a shard lie. Ranks 0 to 3 run on node 0, ranks 4 and 5 on node 1. */
#include "agent/membership/rank_cpus.h"

#include <criterion/criterion.h>

enum { OWN, SHARED, FAR };

static uint32_t node_of_rank[] = {0, 0, 0, 0, 1, 1};
static uint32_t shard_ranks[] = {2, 4, 1, 3, 5};
static struct world_shard shards[] = {[OWN] = {.first_rank = 0, .rank_count = 1},
                                      [SHARED] = {.first_rank = 1, .rank_count = 3},
                                      [FAR] = {.first_rank = 4, .rank_count = 1}};
static const struct world world = {
    .shards = shards, .shard_count = 3, .shard_ranks = shard_ranks, .node_of_rank = node_of_rank, .world_size = 6};

static struct rank_cpus rank_on(uint32_t rank, int cpu)
{
    struct rank_cpus r = {.rank = rank};
    if (cpu >= 0) {
        CPU_SET_S((size_t)cpu, sizeof(r.node), r.node.sets);
    }
    return r;
}

static void expect(uint32_t self, uint32_t shard, const struct rank_cpus *ranks, size_t count, int cpu)
{
    struct cpus wanted = rank_on(0, cpu).node;
    struct cpus found = cpus_of_shard(&world, self, shard, ranks, count);
    cr_expect(CPU_EQUAL_S(sizeof(found), found.sets, wanted.sets), "shard %u", shard);
}

Test(rank_cpus, slots_lie_beside_the_rank_that_fills_them)
{
    const struct rank_cpus ranks[] = {rank_on(0, 7), rank_on(1, 8), rank_on(2, 9), rank_on(3, 10)};
    expect(0, OWN, ranks, 4, 9);
    expect(0, SHARED, ranks, 4, 8);
}

Test(rank_cpus, a_rank_that_is_bound_to_no_node_leaves_the_choice_to_the_next)
{
    const struct rank_cpus ranks[] = {rank_on(1, -1), rank_on(2, -1), rank_on(3, 10)};
    expect(0, OWN, ranks, 3, -1);
    expect(0, SHARED, ranks, 3, 10);
}

Test(rank_cpus, ranks_of_other_nodes_do_not_count)
{
    const struct rank_cpus ranks[] = {rank_on(4, 7), rank_on(5, 8)};
    expect(0, SHARED, ranks, 2, -1);
    expect(0, FAR, ranks, 2, -1);
    expect(1, SHARED, ranks, 2, 7);
    expect(1, FAR, ranks, 2, 8);
}

Test(rank_cpus, without_trainers_there_is_nothing_to_lie_beside)
{
    expect(0, OWN, NULL, 0, -1);
}
