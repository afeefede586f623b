/* SPDX-License-Identifier: Apache-2.0
 * This node's part of a drain. A committed version has a copy at every owner and holder of a shard, so those that are
 * up count as copies. For the order, equal bytes that this node has written before count, too: of a version before it,
 * or in an attempt that failed later. */
#include "agent/drain/drain_share.h"

#include "agent/driver/term.h"

#include <inttypes.h>
#include <stdio.h>

#define NAMED_MAX   16 /* more would make the line unreadable */
#define NAMED_BYTES 512

static bool has_copy(const struct term_context *tc, uint32_t node)
{
    return node != tc->self && tc->lost[node].since_ms == 0;
}

static uint32_t at_other_nodes(const struct term_context *tc, uint32_t local_shard)
{
    const struct shard_placement *s = &tc->placement.shards[tc->shards[local_shard].world_shard];
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->owner_count; i++) {
        count += has_copy(tc, tc->placement.owners[s->first_owner + i]);
    }
    for (uint32_t i = 0; i < s->holder_count; i++) {
        count += has_copy(tc, s->holders[i]);
    }
    return count;
}

static bool is_on_storage(const struct term_context *tc, uint32_t local_shard, struct version version)
{
    const struct local_shard *d = &tc->local_shards[local_shard];
    if (version_none(d->drained_version)) {
        return false;
    }
    uint32_t slot = node_slot_of(tc->node, local_shard, version);
    return slot != NONE32 && hash128_is(node_slot(tc->node, slot)->root, d->drained);
}

uint32_t drain_share(const struct term_context *tc, struct version version, struct drain_place *places)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < tc->setup.shard_count; i++) {
        if (tc->shards[i].drains_here) {
            uint32_t elsewhere = at_other_nodes(tc, i) + is_on_storage(tc, i, version);
            places[count++] = (struct drain_place){.shard = i, .elsewhere = elsewhere};
        }
    }
    drain_order(places, count);
    return count;
}

/* What is lost with this node. Users do not know the ids of shards, so they are named by the first ranks that save
 * them. */
struct alone {
    uint32_t count, written, without_copy, named, ranks[NAMED_MAX];
};

static void name_rank(struct alone *a, uint32_t rank)
{
    for (uint32_t i = 0; i < a->named; i++) {
        if (a->ranks[i] == rank) {
            return;
        }
    }
    if (a->named < NAMED_MAX) {
        a->ranks[a->named++] = rank;
    }
}

static struct alone count_alone(const struct term_context *tc, struct version version)
{
    struct alone out = {0};
    for (uint32_t i = 0; i < tc->setup.shard_count; i++) {
        if (!tc->shards[i].drains_here) {
            continue;
        }
        out.count++;
        out.written += version_is(tc->local_shards[i].drained_version, version);
        if (at_other_nodes(tc, i) == 0) {
            out.without_copy++;
            name_rank(&out, tc->world.shard_ranks[tc->world.shards[tc->shards[i].world_shard].first_rank]);
        }
    }
    return out;
}

static void list_ranks(const struct alone *a, char text[NAMED_BYTES])
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < a->named && used < NAMED_BYTES; i++) {
        used +=
            (size_t)snprintf(text + used, NAMED_BYTES - used, "%s%" PRIu32, i == 0 ? ": of rank " : ", ", a->ranks[i]);
    }
    if (a->named == NAMED_MAX && used < NAMED_BYTES) {
        snprintf(text + used, NAMED_BYTES - used, ", ...");
    }
}

void drain_warn_unpublished(const struct term_context *tc, struct version version)
{
    char ranks[NAMED_BYTES];
    struct alone alone = count_alone(tc, version);
    list_ranks(&alone, ranks);
    if (alone.count > 0) {
        log_warn("version %" PRIu64 ".%" PRIu64 " was not published in time: of this node's %" PRIu32
                 " shards, %" PRIu32 " are written to storage, and %" PRIu32
                 " have no copy on another node that is up%s",
                 version.term, version.step, alone.count, alone.written, alone.without_copy, ranks);
    }
}
