/* SPDX-License-Identifier: Apache-2.0
 * Compares twins, the data-parallel copies that training keeps equal. Their roots arrive with READY, or ahead of it if
 * devices compute them. If two differ, memory was corrupted, or ranks were wrongly declared replicas. */
#include "agent/driver/twins.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The roots reported for one version; the first root of each shard is the one that others are compared with. */
struct version_roots {
    struct version version;
    struct hash128 *roots; /* by world shard */
    uint32_t *nodes;       /* that reported each root; NONE32: none yet */
    bool *reported;        /* indexed like placement.owners; repeated reports are ignored */
};

/* Nodes may be up to CORE_OPEN_MAX versions apart, the number that can be undecided. */
struct twins {
    struct version_roots versions[CORE_OPEN_MAX];
};

void twins_free(struct term_context *tc)
{
    for (uint32_t i = 0; tc->twins != NULL && i < CORE_OPEN_MAX; i++) {
        free(tc->twins->versions[i].roots);
        free(tc->twins->versions[i].nodes);
        free(tc->twins->versions[i].reported);
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
        struct version_roots *vr = &tc->twins->versions[i];
        vr->roots = calloc(tc->world.shard_count, sizeof(*vr->roots));
        vr->nodes = calloc(tc->world.shard_count, sizeof(*vr->nodes));
        vr->reported = calloc(owners_total(&tc->placement) + (size_t)1, sizeof(*vr->reported));
        made = vr->roots != NULL && vr->nodes != NULL && vr->reported != NULL;
    }
    if (!made) {
        twins_free(tc);
    }
    return tc->twins;
}

/* The reports of this version. A new version replaces the oldest one. NULL if it is older than all of them, or out of
 * memory.
 */
static struct version_roots *version_roots_of(struct term_context *tc, struct version version)
{
    struct twins *t = tc->twins != NULL ? tc->twins : twins_make(tc);
    struct version_roots *oldest = t != NULL ? &t->versions[0] : NULL;
    for (uint32_t i = 0; t != NULL && i < CORE_OPEN_MAX; i++) {
        if (version_is(t->versions[i].version, version)) {
            return &t->versions[i];
        }
        oldest = version_cmp(t->versions[i].version, oldest->version) < 0 ? &t->versions[i] : oldest;
    }
    if (oldest == NULL || version_cmp(version, oldest->version) < 0) {
        return NULL;
    }
    oldest->version = version;
    memset(oldest->reported, 0, owners_total(&tc->placement) * sizeof(*oldest->reported));
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
              " on node %s does not match that on node %s (silent corruption, or ranks declared replicas are not)",
              id, version.term, version.step, tc->world.nodes[a].name, tc->world.nodes[b].name);
}

/* The node's index in placement.owners; NONE32 if it does not own the shard. */
static uint32_t owner_index(const struct placement *p, uint32_t shard, uint32_t node)
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
    struct version_roots *vr = m->count > 0 ? version_roots_of(tc, m->version) : NULL;
    for (uint32_t i = 0; i < m->count && vr != NULL; i++) {
        uint32_t shard = m->roots[i].shard;
        uint32_t index = shard < tc->world.shard_count ? owner_index(&tc->placement, shard, node) : NONE32;
        if (index == NONE32 || vr->reported[index]) {
            continue;
        }
        vr->reported[index] = true;
        if (vr->nodes[shard] == NONE32) {
            vr->nodes[shard] = node;
            vr->roots[shard] = m->roots[i].root;
        } else if (!hash128_is(vr->roots[shard], m->roots[i].root)) {
            report_divergence(tc, shard, m->version, node, vr->nodes[shard]);
        }
    }
}
