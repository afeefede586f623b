/* SPDX-License-Identifier: Apache-2.0
 * Decides which nodes hold copies of which shards, and which node drains which shard. Pure: the same world gives the
 * same placement on every node. */
#ifndef TCK_RECOVERY_PLACEMENT_H
#define TCK_RECOVERY_PLACEMENT_H

#include "base/world.h"
#include "core/protocol.h"

struct shard_placement {
    uint32_t source;       /* the owner node that sends replicas */
    uint32_t owner_count;  /* nodes with a rank that holds the shard: world order, `owners` below */
    uint32_t first_owner;  /* into placement.owners */
    uint32_t holder_count; /* further nodes that store a copy */
    uint32_t holders[CORE_HOLDERS_MAX];
    uint32_t drainer; /* the owner node that writes it to storage: shares twins' writing evenly by bytes */
};

struct placement {
    uint32_t shard_count;
    struct shard_placement *shards; /* as world.shards */
    uint32_t *owners;
    uint32_t domains_short; /* shards with fewer distinct domains than copies, for the user */
};

/* copies: the number wanted in distinct domains, including the owners'; an owner in a domain of its own counts.
 * Holders are chosen among nodes whose domain has no copy yet: with a stride over domains so that a whole domain's
 * loss never takes a shard, balanced by bytes, and stable when one node is replaced at the same place. Fewer domains
 * than copies: further nodes of the same domains are taken, as far as there are any, and domains_short counts it.
 * copies: 1 to CORE_HOLDERS_MAX + 1. */
must_check tck_status_t placement_build(const struct world *world, uint32_t copies, struct placement *out,
                                        struct error *err);
void placement_free(struct placement *placement);
bool placement_is_owner(const struct placement *p, uint32_t shard, uint32_t node);
bool placement_is_holder(const struct placement *p, uint32_t shard, uint32_t node);
/* A shard that only storage has is passed from owner to owner along a binary tree. Returns the place, in their order,
 * of the owner from which this one gets it. Not for the first owner, which reads storage. */
uint32_t placement_parent(uint32_t place);
/* How many owners pass the shard on, one after the other, until this one has it; 0: it reads storage itself, or is not
 * an owner. */
uint32_t placement_turn(const struct placement *p, uint32_t shard, uint32_t node);

#endif
