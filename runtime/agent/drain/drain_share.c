/* SPDX-License-Identifier: Apache-2.0
 * This node's part of a drain. A committed version has a copy at every owner and holder of a shard, so those that are
 * up count as copies, and so do equal bytes that this node has written before: of a version before it, or in an attempt
 * that failed later. */
#include "agent/drain/drain_share.h"

#include "agent/driver/term.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

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

/* Removes what is written. Returns how many are left, in their order. */
static uint32_t keep_unwritten(const struct term_context *tc, struct version version, struct drain_place *places,
                               uint32_t count)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!version_is(tc->local_shards[places[i].shard].drained_version, version)) {
            places[left++] = places[i];
        }
    }
    return left;
}

/* Users do not know the ids of shards, so each is named by the first rank that saves it. */
static void name_all(const struct term_context *tc, const struct drain_place *places, uint32_t count,
                     char text[NAMED_BYTES])
{
    const struct world *world = &tc->world;
    uint32_t shown = count < NAMED_MAX ? count : NAMED_MAX;
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < shown && used < NAMED_BYTES; i++) {
        const struct world_shard *shard = &world->shards[tc->shards[places[i].shard].world_shard];
        used += (size_t)snprintf(text + used, NAMED_BYTES - used, "%s%" PRIu32 " (%" PRIu32 ")", i == 0 ? "" : ", ",
                                 world->shard_ranks[shard->first_rank], places[i].elsewhere);
    }
    if (shown < count && used < NAMED_BYTES) {
        snprintf(text + used, NAMED_BYTES - used, " and %" PRIu32 " more", count - shown);
    }
}

void drain_warn_unwritten(const struct term_context *tc, struct version version)
{
    char names[NAMED_BYTES];
    struct drain_place *places = calloc(tc->setup.shard_count + (size_t)1, sizeof(*places));
    if (places == NULL) {
        log_error("out of memory: which shards of version %" PRIu64 ".%" PRIu64 " are missing on storage is not known",
                  version.term, version.step);
        return;
    }
    uint32_t count = drain_share(tc, version, places), left = keep_unwritten(tc, version, places, count);
    name_all(tc, places, left, names);
    if (left > 0) {
        log_warn("of this node's %" PRIu32 " shards of version %" PRIu64 ".%" PRIu64 ", %" PRIu32
                 " are not on storage; by rank, with the number of other copies: %s",
                 count, version.term, version.step, left, names);
    } else if (count > 0) {
        log_warn("this node's part of version %" PRIu64 ".%" PRIu64 " is written, but not that of another node",
                 version.term, version.step);
    }
    free(places);
}
