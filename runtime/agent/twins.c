/* SPDX-License-Identifier: Apache-2.0
 * Twins are data-parallel copies that training keeps equal. Their roots come with every READY: if two differ, memory or
 * arithmetic went wrong somewhere, or ranks that were declared replicas are none. */
#include "agent/agent.h"

#include <stdlib.h>

/* Who reported which root first, of one version. */
struct twins {
    struct version version;
    struct hash128 *roots; /* by world shard */
    uint32_t *nodes;       /* who said so; NONE32: nobody yet */
};

void twins_free(struct formation *f)
{
    if (f->twins) {
        free(f->twins->roots);
        free(f->twins->nodes);
        free(f->twins);
        f->twins = NULL;
    }
}

static struct twins *twins_make(struct formation *f)
{
    struct twins *t = calloc(1, sizeof *t);
    f->twins = t;
    if (t) {
        t->roots = calloc(f->world.shard_count, sizeof *t->roots);
        t->nodes = calloc(f->world.shard_count, sizeof *t->nodes);
        if (!t->roots || !t->nodes) {
            twins_free(f);
        }
    }
    return f->twins;
}

/* The table of this version, emptied for a newer one; NULL for an older one or without memory. */
static struct twins *twins_of(struct formation *f, struct version version)
{
    struct twins *t = f->twins ? f->twins : twins_make(f);
    if (!t || version_cmp(version, t->version) < 0) {
        return NULL;
    }
    if (!version_is(version, t->version)) {
        t->version = version;
        for (uint32_t s = 0; s < f->world.shard_count; s++) {
            t->nodes[s] = NONE32;
        }
    }
    return t;
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
    struct twins *t = m->count > 0 ? twins_of(f, m->version) : NULL;
    for (uint32_t i = 0; t && i < m->count; i++) {
        uint32_t shard = m->roots[i].shard;
        if (shard >= f->world.shard_count) {
            continue;
        }
        if (t->nodes[shard] == NONE32) {
            t->nodes[shard] = node;
            t->roots[shard] = m->roots[i].root;
        } else if (t->nodes[shard] != node && !hash128_is(t->roots[shard], m->roots[i].root)) {
            say(f, shard, m->version, node, t->nodes[shard]);
        }
    }
}
