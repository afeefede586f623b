/* SPDX-License-Identifier: Apache-2.0
 * Small worlds and inventories for the tests of recovery. */
#ifndef TCK_TEST_RECOVERY_FIXTURE_H
#define TCK_TEST_RECOVERY_FIXTURE_H

#include "recovery/plan.h"

#define FIXTURE_LAYOUT ((struct hash128){0x1a, 0x70})

/* Nodes "node0", "node1", ... with ranks_per_node ranks each; nodes_per_domain neighbours share a domain. No shards. */
struct world fixture_world(uint32_t nodes, uint32_t ranks_per_node, uint32_t nodes_per_domain);
/* Adds a shard held by these ranks; ids ascend in the order of the calls. */
void fixture_add_shard(struct world *world, uint64_t bytes, uint32_t rank_count, const uint32_t *ranks);
/* One private shard of this size per rank. */
void fixture_add_private_shards(struct world *world, uint64_t bytes);

/* An empty inventory of a world's node, with room for some holdings. */
struct inventory fixture_inventory(const struct world *world, uint32_t node);
/* A committed copy of the world's shard; its root follows from shard and version. */
void fixture_hold(struct inventory *inventory, const struct world *world, uint32_t shard, struct version version);

#endif
