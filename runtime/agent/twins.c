/* SPDX-License-Identifier: Apache-2.0
 * Twins are data-parallel copies that training keeps equal. Their roots come with every READY: if two differ, memory or
 * arithmetic went wrong somewhere, or ranks that were declared replicas are none. */
#include "agent/agent.h"

#include <stdlib.h>
#include <string.h>

/* Who reported which root first, of one version. */
struct roll {
    struct version version;
    struct hash128 *roots; /* by world shard */
    uint32_t *nodes;       /* who said so; NONE32: nobody yet */
    bool *heard;           /* by node: READY is repeated until the version is decided */
};

/* Nodes may be as many versions apart as can be undecided. */
struct twins {
    struct roll rolls[CORE_OPEN_MAX];
};

void twins_free(struct formation *f)
{
    for (uint32_t i = 0; f->twins && i < CORE_OPEN_MAX; i++) {
        free(f->twins->rolls[i].roots);
        free(f->twins->rolls[i].nodes);
        free(f->twins->rolls[i].heard);
    }
    free(f->twins);
    f->twins = NULL;
}

static struct twins *twins_make(struct formation *f)
{
    bool made = (f->twins = calloc(1, sizeof *f->twins)) != NULL;
    for (uint32_t i = 0; made && i < CORE_OPEN_MAX; i++) {
        struct roll *roll = &f->twins->rolls[i];
        roll->roots = calloc(f->world.shard_count, sizeof *roll->roots);
        roll->nodes = calloc(f->world.shard_count, sizeof *roll->nodes);
        roll->heard = calloc(f->world.node_count, sizeof *roll->heard);
        made = roll->roots && roll->nodes && roll->heard;
    }
    if (!made) {
        twins_free(f);
    }
    return f->twins;
}

/* The version's, in place of the oldest if it is new; NULL for one that is older still or without memory. */
static struct roll *roll_of(struct formation *f, struct version version)
{
    struct twins *t = f->twins ? f->twins : twins_make(f);
    struct roll *oldest = t ? &t->rolls[0] : NULL;
    for (uint32_t i = 0; t && i < CORE_OPEN_MAX; i++) {
        if (version_is(t->rolls[i].version, version)) {
            return &t->rolls[i];
        }
        oldest = version_cmp(t->rolls[i].version, oldest->version) < 0 ? &t->rolls[i] : oldest;
    }
    if (!oldest || version_cmp(version, oldest->version) < 0) {
        return NULL;
    }
    oldest->version = version;
    memset(oldest->heard, 0, f->world.node_count * sizeof *oldest->heard);
    for (uint32_t s = 0; s < f->world.shard_count; s++) {
        oldest->nodes[s] = NONE32;
    }
    return oldest;
}

static void say(struct formation *f, uint32_t shard, struct version version, uint32_t a, uint32_t b)
{
    char id[HASH128_TEXT];
    hash128_text(f->world.shards[shard].id, id);
    f->divergences++;
    log_error(
        "twins differ: shard %s of version %llu.%llu on node %s is not what node %s has (silent corruption, or ranks "
        "that should be replicas are not)",
        id, (unsigned long long)version.term, (unsigned long long)version.step, f->world.nodes[a].name,
        f->world.nodes[b].name);
}

void twins_compare(struct formation *f, uint32_t node, const struct wire_ready *m)
{
    struct roll *roll = m->count > 0 ? roll_of(f, m->version) : NULL;
    if (!roll || roll->heard[node]) {
        return;
    }
    roll->heard[node] = true;
    for (uint32_t i = 0; i < m->count; i++) {
        uint32_t shard = m->roots[i].shard;
        if (shard >= f->world.shard_count) {
            continue;
        }
        if (roll->nodes[shard] == NONE32) {
            roll->nodes[shard] = node;
            roll->roots[shard] = m->roots[i].root;
        } else if (!hash128_is(roll->roots[shard], m->roots[i].root)) {
            say(f, shard, m->version, node, roll->nodes[shard]);
        }
    }
}
