/* SPDX-License-Identifier: Apache-2.0
 * Copies that come from other nodes: offered by an owner to protect a version, or fetched by a recovery; and copies
 * that turn out to be corrupt. */
#include "core/node_parts.h"
#include "core/node_pressure.h"

static void reject(const struct event *e, uint32_t world_shard, uint32_t node, enum refusal refusal,
                   struct actions *out)
{
    struct action *a = action_add(out, ACTION_REJECT_OFFER);
    a->node = node;
    a->shard = world_shard;
    a->version = e->version;
    a->refusal = refusal;
}

static void acknowledge(const struct node *n, uint32_t slot, uint32_t node, struct actions *out)
{
    struct action *a = action_add(out, ACTION_ACK_OFFER);
    a->slot = slot;
    a->node = node;
    a->shard = node_shard_of_slot(n, slot)->world_shard;
    a->version = n->slots[slot].version;
    a->root = n->slots[slot].root;
}

static void receive(struct node *n, uint32_t slot, const struct event *e, uint32_t from, struct actions *out)
{
    n->slots[slot].from = from;
    n->slots[slot].base = NONE32;
    n->slots[slot].root = e->root;
    node_set_slot(n, slot, SLOT_RECEIVING, e->version, out);
}

/* An offer of a version that has a slot here. While bytes of an earlier offer still arrive, there is no answer: that
 * transfer ends by itself, and the owner asks again. */
static void offer_known(struct node *n, uint32_t slot, const struct event *e, struct actions *out)
{
    const struct slot *s = &n->slots[slot];
    if (s->state != SLOT_VERIFIED) {
        return;
    }
    if (hash128_is(s->root, e->root)) {
        acknowledge(n, slot, e->node, out);
    } else {
        reject(e, e->shard, e->node, REFUSAL_CORRUPT, out);
    }
}

/* The slot with the offered copy's base, NONE32 if the base is not here or is not what the sender has: the same version
 * has another root where twins differ. */
static uint32_t base_here(const struct node *n, uint32_t shard, const struct event *e)
{
    uint32_t base = version_none(e->base) ? NONE32 : node_slot_of(n, shard, e->base);
    bool same = base != NONE32 && hash128_is(n->slots[base].root, e->base_root);
    return same && n->slots[base].state == SLOT_VERIFIED ? base : NONE32;
}

/* The base's slot stays until the copy has arrived, even if the base is over by then or turns out to be damaged. */
static uint32_t pin_base(struct node *n, uint32_t slot, uint32_t base)
{
    n->slots[slot].base = base;
    if (base != NONE32) {
        n->slots[base].pins++;
    }
    return base;
}

static void release_base(struct node *n, uint32_t slot, struct actions *out)
{
    uint32_t base = n->slots[slot].base;
    n->slots[slot].base = NONE32;
    if (base != NONE32) {
        node_unpin_slot(n, base, out);
    }
}

void receive_offer(struct node *n, const struct event *e, struct actions *out)
{
    uint32_t shard = node_shard_of(n, e->shard);
    if (shard == NONE32 || !n->setup->shards[shard].held) {
        reject(e, e->shard, e->node, REFUSAL_NOT_A_HOLDER, out);
        return;
    }
    if (e->version.term != n->setup->term || node_fate(n, e->version) == FATE_OVER) {
        reject(e, e->shard, e->node, REFUSAL_ABORTED, out);
        return;
    }
    uint32_t known = node_slot_of(n, shard, e->version);
    if (known != NONE32) {
        offer_known(n, known, e, out);
        return;
    }
    uint32_t slot = node_empty_slot(n, shard);
    if (slot == NONE32) {
        reject(e, e->shard, e->node, node_saving_suspended(n) ? REFUSAL_MEMORY : REFUSAL_NO_SLOT, out);
        return;
    }
    receive(n, slot, e, e->node, out);
    struct action *a = action_add(out, ACTION_STORE);
    a->slot = slot;
    a->base_slot = pin_base(n, slot, base_here(n, shard, e));
    a->node = e->node;
    a->shard = e->shard;
    a->version = e->version;
    a->root = e->root;
}

/* An offered copy must be what the owner announced; a fetched one was checked against what the recovery expects. */
static bool arrived_whole(const struct slot *s, const struct event *e)
{
    return e->ok && (s->from == NONE32 || hash128_is(e->root, s->root));
}

void receive_done(struct node *n, const struct event *e, struct actions *out)
{
    struct slot *s = &n->slots[e->slot];
    uint32_t from = s->from;
    uint32_t world_shard = node_shard_of_slot(n, e->slot)->world_shard;
    release_base(n, e->slot, out);
    if (!arrived_whole(s, e)) {
        node_free_slot(n, e->slot, out);
        if (from != NONE32) {
            enum refusal refusal = e->refusal != REFUSAL_NONE ? e->refusal : REFUSAL_CORRUPT;
            reject(e, world_shard, from, refusal, out);
        }
        return;
    }
    s->root = e->root;
    node_set_slot(n, e->slot, SLOT_VERIFIED, s->version, out);
    bool over = s->doomed;
    node_free_if_unused(n, e->slot, out);
    if (from != NONE32 && over) {
        reject(e, world_shard, from, REFUSAL_ABORTED, out);
    } else if (from != NONE32) {
        acknowledge(n, e->slot, from, out);
    }
}

#define EXPENDABLE_NEWER 4

/* In which order a recovery gives up this version for the one that it fetches, as node.h explains. 0: never. */
static int expendable(struct version v, const struct event *fetch)
{
    if (version_is(v, fetch->floor)) {
        return 0;
    }
    if (version_is(v, fetch->fallback)) {
        return 1;
    }
    if (version_cmp(v, fetch->version) > 0) {
        return EXPENDABLE_NEWER;
    }
    return version_cmp(v, fetch->floor) < 0 ? 3 : 2;
}

static bool may_be_given_up(const struct node *n, const struct slot *s)
{
    const struct decision *d = &n->decision;
    return s->state == SLOT_VERIFIED && s->pins == 0 && s->version.term < n->setup->term &&
           !version_is(s->version, d->watermark) && !version_is(s->version, d->drain);
}

/* The slot that a fetch takes when none is empty; NONE32 if none may be given up. */
static uint32_t expendable_slot(const struct node *n, uint32_t shard, const struct event *e)
{
    uint32_t first = n->first_slot[shard];
    uint32_t best = NONE32;
    int best_rank = 0;
    for (uint32_t i = first; i < first + n->setup->shards[shard].slot_count; i++) {
        const struct slot *s = &n->slots[i];
        int rank = may_be_given_up(n, s) ? expendable(s->version, e) : 0;
        if (rank == 0 || rank < best_rank) {
            continue;
        }
        int newer = best == NONE32 ? 0 : version_cmp(s->version, n->slots[best].version);
        if (rank > best_rank || (rank == EXPENDABLE_NEWER ? newer > 0 : newer < 0)) {
            best = i;
            best_rank = rank;
        }
    }
    return best;
}

/* The slot for a fetch, emptied if need be; NONE32 and why not. */
static uint32_t slot_for_fetch(struct node *n, uint32_t shard, const struct event *e, enum refusal *refusal_out,
                               struct actions *out)
{
    if (shard == NONE32) {
        *refusal_out = REFUSAL_NOT_A_HOLDER;
        return NONE32;
    }
    if (node_fate(n, e->version) == FATE_OVER) {
        *refusal_out = REFUSAL_ABORTED;
        return NONE32;
    }
    *refusal_out = REFUSAL_NO_SLOT;
    if (node_slot_of(n, shard, e->version) != NONE32) {
        return NONE32; /* on its way already */
    }
    uint32_t slot = node_empty_slot(n, shard);
    if (slot == NONE32) {
        slot = expendable_slot(n, shard, e);
        if (slot != NONE32) {
            node_free_slot(n, slot, out);
        } else if (node_has_given_back(n, shard)) {
            *refusal_out = REFUSAL_MEMORY;
        }
    }
    return slot;
}

/* A copy that is here already is kept even if its root differs from that of the copies elsewhere, because it cannot be
 * known which of two twins is right (recovery/replica_index.h). */
void receive_fetch(struct node *n, const struct event *e, struct actions *out)
{
    uint32_t shard = node_shard_of(n, e->shard);
    uint32_t slot = shard == NONE32 ? NONE32 : node_slot_of(n, shard, e->version);
    bool here = slot != NONE32 && n->slots[slot].state == SLOT_VERIFIED;
    enum refusal refusal = REFUSAL_NONE;
    if (!here) {
        slot = slot_for_fetch(n, shard, e, &refusal, out);
        if (slot != NONE32) {
            receive(n, slot, e, NONE32, out);
        }
    }
    struct action *a = action_add(out, ACTION_FETCH_SLOT);
    a->slot = slot;
    a->shard = e->shard;
    a->version = e->version;
    a->ok = here;
    a->refusal = slot == NONE32 ? refusal : REFUSAL_NONE;
}

void receive_corrupt(struct node *n, const struct event *e, struct actions *out)
{
    struct version v = n->slots[e->slot].version;
    if (n->slots[e->slot].state != SLOT_VERIFIED) {
        return;
    }
    node_free_slot(n, e->slot, out);
    if (v.term == n->setup->term) {
        save_refuse(n, v, REFUSAL_CORRUPT, out); /* one copy is missing: it must not be committed, if it is not yet */
    }
}
