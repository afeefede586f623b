/* SPDX-License-Identifier: Apache-2.0
 * Finds the copies of the committed version that this node should have but does not. */
#include "agent/driver/missing_copies.h"

#include "agent/driver/slot_ops.h"

/* True if this node should have a copy of the newest committed version. Every owner and holder of the shard has one
 * when a version commits, and when a recovery is over. */
bool copy_is_due(const struct term_context *tc, uint32_t local_shard)
{
    const struct node_shard *s = &tc->shards[local_shard];
    return s->world_shard != NONE32 && !tc->local_shards[local_shard].gone && (s->storing_rank != NONE32 || s->held);
}

bool copy_is_here(const struct term_context *tc, uint32_t local_shard, struct version version)
{
    uint32_t slot = node_slot_of(tc->node, local_shard, version);
    return slot != NONE32 && node_slot(tc->node, slot)->state == SLOT_VERIFIED;
}

struct version copy_due(const struct term_context *tc)
{
    const struct decision *d = node_decision(tc->node);
    return d->based || d->watermark.term == d->term ? d->watermark : VERSION_NONE;
}

static uint32_t missing(const struct term_context *tc)
{
    struct version version = copy_due(tc);
    uint32_t count = 0;
    for (uint32_t i = 0; !version_none(version) && i < tc->setup.shard_count; i++) {
        count += copy_is_due(tc, i) && !copy_is_here(tc, i, version);
    }
    return count;
}

uint64_t copies_missing(const struct slot_ops *slot_ops, const struct term_context *tc)
{
    return tc != NULL && !tc->closed && slot_ops_memory(slot_ops) == MEMORY_STEADY ? missing(tc) : 0;
}
