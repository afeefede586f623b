/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/membership/rank_cpus.h"

static struct cpus node_of_rank(uint32_t rank, const struct rank_cpus *ranks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (ranks[i].rank == rank) {
            return ranks[i].node;
        }
    }
    return (struct cpus){0};
}

struct cpus cpus_of_shard(const struct world *world, uint32_t self, uint32_t shard, const struct rank_cpus *ranks,
                          size_t count)
{
    const struct world_shard *s = &world->shards[shard];
    struct cpus found = {0};
    for (uint32_t i = 0; i < s->rank_count && cpus_is_none(&found); i++) {
        uint32_t rank = world->shard_ranks[s->first_rank + i];
        if (world->node_of_rank[rank] == self) {
            found = node_of_rank(rank, ranks, count);
        }
    }
    return found;
}
