/* SPDX-License-Identifier: Apache-2.0
 * Compares twins, the data-parallel copies that training keeps equal. Their roots arrive with READY, or ahead of it if
 * devices compute them. If two differ, memory was corrupted, or ranks were wrongly declared replicas. */
#include "agent/driver/twins.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The first root reported for each shard of one version. */
struct roll {
    struct version version;
    struct hash128 *roots; /* by world shard */
    uint32_t *nodes;       /* that reported it; NONE32: none yet */
    bool *heard;           /* by owner of a shard, as in placement.owners: repeated reports are ignored */
};

/* Nodes may be as many versions apart as can be undecided. */
struct twins {
    struct roll rolls[CORE_OPEN_MAX];
};

void twins_free(struct term_context *tc)
{
    for (uint32_t i = 0; tc->twins != NULL && i < CORE_OPEN_MAX; i++) {
        free(tc->twins->rolls[i].roots);
        free(tc->twins->rolls[i].nodes);
        free(tc->twins->rolls[i].heard);
    }
    free(tc->twins);
    tc->twins = NULL;
}

static uint32_t owners_total(const struct placement *p)
{
    uint32_t total = 0;
    for (uint32_t s = 0; s < p->shard_count; s++) {
        total += p->shards[s].owner_count;
    }
    return total;
}

static struct twins *twins_make(struct term_context *tc)
{
    bool made = (tc->twins = calloc(1, sizeof(*tc->twins))) != NULL;
    for (uint32_t i = 0; made && i < CORE_OPEN_MAX; i++) {
        struct roll *roll = &tc->twins->rolls[i];
        roll->roots = calloc(tc->world.shard_count, sizeof(*roll->roots));
        roll->nodes = calloc(tc->world.shard_count, sizeof(*roll->nodes));
        roll->heard = calloc(owners_total(&tc->placement) + (size_t)1, sizeof(*roll->heard));
        made = roll->roots != NULL && roll->nodes != NULL && roll->heard != NULL;
    }
    if (!made) {
        twins_free(tc);
    }
    return tc->twins;
}

/* The roll of this version, which replaces the oldest one if it is new; NULL if it is older than all, or out of memory.
 */
static struct roll *roll_of(struct term_context *tc, struct version version)
{
    struct twins *t = tc->twins != NULL ? tc->twins : twins_make(tc);
    struct roll *oldest = t != NULL ? &t->rolls[0] : NULL;
    for (uint32_t i = 0; t != NULL && i < CORE_OPEN_MAX; i++) {
        if (version_is(t->rolls[i].version, version)) {
            return &t->rolls[i];
        }
        oldest = version_cmp(t->rolls[i].version, oldest->version) < 0 ? &t->rolls[i] : oldest;
    }
    if (oldest == NULL || version_cmp(version, oldest->version) < 0) {
        return NULL;
    }
    oldest->version = version;
    memset(oldest->heard, 0, owners_total(&tc->placement) * sizeof(*oldest->heard));
    for (uint32_t s = 0; s < tc->world.shard_count; s++) {
        oldest->nodes[s] = NONE32;
    }
    return oldest;
}

static void report_divergence(struct term_context *tc, uint32_t shard, struct version version, uint32_t a, uint32_t b)
{
    char id[HASH128_TEXT];
    hash128_text(tc->world.shards[shard].id, id);
    tc->divergences++;
    log_error("twins differ: shard %s of version %" PRIu64 ".%" PRIu64
              " on node %s does not match that on node %s (silent "
              "corruption, or ranks that should be replicas are not)",
              id, version.term, version.step, tc->world.nodes[a].name, tc->world.nodes[b].name);
}

/* The node's index in placement.owners; NONE32 if it does not own the shard. */
static uint32_t owner_place(const struct placement *p, uint32_t shard, uint32_t node)
{
    const struct shard_placement *s = &p->shards[shard];
    for (uint32_t i = 0; i < s->owner_count; i++) {
        if (p->owners[s->first_owner + i] == node) {
            return s->first_owner + i;
        }
    }
    return NONE32;
}

void twins_compare(struct term_context *tc, uint32_t node, const struct wire_roots *m)
{
    struct roll *roll = m->count > 0 ? roll_of(tc, m->version) : NULL;
    for (uint32_t i = 0; i < m->count && roll != NULL; i++) {
        uint32_t shard = m->roots[i].shard;
        uint32_t place = shard < tc->world.shard_count ? owner_place(&tc->placement, shard, node) : NONE32;
        if (place == NONE32 || roll->heard[place]) {
            continue;
        }
        roll->heard[place] = true;
        if (roll->nodes[shard] == NONE32) {
            roll->nodes[shard] = node;
            roll->roots[shard] = m->roots[i].root;
        } else if (!hash128_is(roll->roots[shard], m->roots[i].root)) {
            report_divergence(tc, shard, m->version, node, roll->nodes[shard]);
        }
    }
}
