/* SPDX-License-Identifier: Apache-2.0
 * When a node sends which version to a holder. */
#include "core/node_copies.h"

static bool is_given_up(struct node *n, struct version v)
{
    const struct save *s = node_save(n, v);
    return s == NULL || s->refusal != REFUSAL_NONE;
}

/* An older version is in the way until it is decided, unless it was given up and, as far as this node knows, the holder
 * has got nothing of it; and after that until it is no longer sent, since the holder's slot is in use until then. */
static bool must_wait(struct node *n, uint32_t slot, uint32_t holder)
{
    struct version v = n->slots[slot].version;
    uint32_t shard = n->slots[slot].shard, first = n->first_slot[shard];
    for (uint32_t i = first; i < first + n->setup->shards[shard].slot_count; i++) {
        const struct slot *other = &n->slots[i];
        bool in_use = other->state != SLOT_FREE && other->state != SLOT_QUARANTINED;
        bool older = in_use && other->version.term == v.term && other->version.step < v.step;
        enum copy_state state = n->copies[i][holder].state;
        if (older && state == COPY_CANCELED) {
            return true;
        }
        if (!older || node_fate(n, other->version) != FATE_UNDECIDED) {
            continue;
        }
        if (state == COPY_SENDING || state == COPY_ACKED || !is_given_up(n, other->version)) {
            return true;
        }
    }
    return false;
}

/* The slot with the base of this one's version, with a pin while it is read; NONE32 if it is not whole here. */
static uint32_t pin_base(struct node *n, uint32_t slot)
{
    struct version committed = n->decision.watermark;
    uint32_t base = node_slot_of(n, n->slots[slot].shard, committed);
    bool older = version_cmp(committed, n->slots[slot].version) < 0;
    if (base == NONE32 || !older || n->slots[base].state != SLOT_VERIFIED) {
        return NONE32;
    }
    n->slots[base].pins++;
    return base;
}

static void replicate(struct node *n, uint32_t slot, uint32_t holder, struct actions *out)
{
    const struct node_shard *shard = node_shard_of_slot(n, slot);
    n->copies[slot][holder].state = COPY_SENDING;
    struct action *a = action_add(out, ACTION_REPLICATE);
    a->slot = slot;
    a->base_slot = pin_base(n, slot);
    a->node = shard->holders[holder];
    a->shard = shard->world_shard;
    a->version = n->slots[slot].version;
    a->root = n->slots[slot].root;
}

void copies_due(struct node *n, uint32_t slot)
{
    for (uint32_t h = 0; h < node_shard_of_slot(n, slot)->holder_count; h++) {
        n->copies[slot][h] = (struct copy){.state = COPY_DUE, .retry_ms = n->now_ms};
    }
}

static void send_to(struct node *n, uint32_t slot, uint32_t holder, struct actions *out)
{
    const struct copy *copy = &n->copies[slot][holder];
    bool may = n->slots[slot].state == SLOT_VERIFIED && !is_given_up(n, n->slots[slot].version);
    if (may && copy->state == COPY_DUE && n->now_ms >= copy->retry_ms && !must_wait(n, slot, holder)) {
        replicate(n, slot, holder, out);
    }
}

void copies_send(struct node *n, uint32_t slot, struct actions *out)
{
    for (uint32_t h = 0; h < node_shard_of_slot(n, slot)->holder_count; h++) {
        send_to(n, slot, h, out);
    }
}

static void send_now(struct node *n, uint32_t slot, uint32_t holder, struct actions *out)
{
    n->copies[slot][holder].retry_ms = n->now_ms;
    send_to(n, slot, holder, out);
}

void copies_send_next(struct node *n, uint32_t slot, uint32_t holder, struct actions *out)
{
    uint32_t shard = n->slots[slot].shard, first = n->first_slot[shard];
    for (uint32_t i = first; i < first + n->setup->shards[shard].slot_count; i++) {
        send_now(n, i, holder, out);
    }
}

void copies_cancel(struct node *n, uint32_t slot, struct actions *out)
{
    const struct node_shard *shard = node_shard_of_slot(n, slot);
    for (uint32_t h = 0; h < shard->holder_count; h++) {
        if (n->copies[slot][h].state == COPY_SENDING) {
            n->copies[slot][h].state = COPY_CANCELED;
            struct action *a = action_add(out, ACTION_CANCEL_COPY);
            a->slot = slot;
            a->node = shard->holders[h];
            a->shard = shard->world_shard;
            a->version = n->slots[slot].version;
        }
    }
}

bool node_copy_wanted(const struct node *n, uint32_t slot, uint32_t holder)
{
    const struct node_shard *shard = node_shard_of_slot(n, slot);
    for (uint32_t h = 0; h < shard->holder_count; h++) {
        if (shard->holders[h] == holder) {
            return n->copies[slot][h].state == COPY_SENDING;
        }
    }
    return false;
}

void copies_send_decided(struct node *n, struct actions *out)
{
    for (uint32_t i = 0; i < n->slot_total; i++) {
        for (uint32_t h = 0; h < node_shard_of_slot(n, i)->holder_count; h++) {
            send_now(n, i, h, out);
        }
    }
}
