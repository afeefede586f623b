/* SPDX-License-Identifier: Apache-2.0
 * On which NUMA node the slots of a shard are to lie: that of the rank which fills them. */
#ifndef TCK_AGENT_RANK_CPUS_H
#define TCK_AGENT_RANK_CPUS_H

#include "base/cpus.h"
#include "base/world.h"

/* Where a trainer of this node runs. */
struct rank_cpus {
    uint32_t rank;
    struct cpus bound; /* to these processors */
    struct cpus node;  /* those of its NUMA node; none if it is bound to several nodes or to nothing */
};

/* The processors beside which a shard's slots are to lie: those of the NUMA node of its first rank that runs on node
 * `self` of the world and is bound to one. None if there is no such rank: slots of other nodes' shards are filled by
 * the network. */
struct cpus cpus_of_shard(const struct world *world, uint32_t self, uint32_t shard, const struct rank_cpus *ranks,
                          size_t count);

#endif
