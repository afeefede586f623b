/* SPDX-License-Identifier: Apache-2.0
 * The slots of a node: what they hold, and the only ways in which they change. */
#include "core/node_state.h"

#include <string.h>

const struct decision *node_decision(const struct node *node)
{
    return &node->decision;
}

uint32_t node_slot_total(const struct node *node)
{
    return node->slot_total;
}

const struct slot *node_slot(const struct node *node, uint32_t slot)
{
    return &node->slots[slot];
}

uint32_t node_slot_of(const struct node *node, uint32_t shard, struct version version)
{
    uint32_t first = node->first_slot[shard];
    for (uint32_t i = first; i < first + node->setup->shards[shard].slot_count; i++) {
        enum slot_state state = node->slots[i].state;
        if (state != SLOT_FREE && state != SLOT_QUARANTINED && version_is(node->slots[i].version, version)) {
            return i;
        }
    }
    return NONE32;
}

uint32_t node_shard_of(const struct node *node, uint32_t world_shard)
{
    for (uint32_t i = 0; world_shard != NONE32 && i < node->setup->shard_count; i++) {
        if (node->setup->shards[i].world_shard == world_shard) {
            return i;
        }
    }
    return NONE32;
}

uint32_t node_save_index(const struct node *n, struct version v)
{
    for (uint32_t i = 0; i < NODE_SAVES; i++) {
        if (version_is(n->saves[i].version, v)) {
            return i;
        }
    }
    return NONE32;
}

struct save *node_save(struct node *n, struct version v)
{
    uint32_t i = node_save_index(n, v);
    return i == NONE32 ? NULL : &n->saves[i];
}

struct version node_version(const struct node *n, uint64_t step)
{
    return (struct version){n->setup->term, step};
}

enum fate node_fate(const struct node *n, struct version v)
{
    return decision_fate(&n->decision, v);
}

const struct node_shard *node_shard_of_slot(const struct node *n, uint32_t slot)
{
    return &n->setup->shards[n->slots[slot].shard];
}

void node_set_slot(struct node *n, uint32_t slot, enum slot_state state, struct version version, struct actions *out)
{
    struct slot *s = &n->slots[slot];
    if (!slot_may_become(s->state, state)) {
        return;
    }
    s->state = state;
    s->version = version;
    action_add(out, ACTION_WRITE_HEADER)->slot = slot;
}

void node_free_slot(struct node *n, uint32_t slot, struct actions *out)
{
    struct slot *s = &n->slots[slot];
    node_set_slot(n, slot, SLOT_FREE, VERSION_NONE, out);
    s->root = (struct hash128){0, 0};
    s->doomed = false;
    s->to_storage = false;
    s->undigested = false;
    s->from = NONE32;
    s->base = NONE32;
    memset(n->copies[slot], 0, sizeof(n->copies[slot]));
}

void node_quarantine_slot(struct node *n, uint32_t slot, struct actions *out)
{
    node_set_slot(n, slot, SLOT_QUARANTINED, n->slots[slot].version, out);
}

/* A drain reads the owners' slots. A holder that kept such a version could not receive the next one meanwhile. */
static bool is_drained(const struct node *n, uint32_t slot)
{
    return node_shard_of_slot(n, slot)->storing_rank != NONE32 && version_is(n->slots[slot].version, n->decision.drain);
}

void node_free_if_unused(struct node *n, uint32_t slot, struct actions *out)
{
    const struct slot *s = &n->slots[slot];
    bool at_rest = s->state == SLOT_VERIFIED || (s->state == SLOT_SEALED && s->undigested);
    if (s->doomed && at_rest && s->pins == 0 && !is_drained(n, slot)) {
        node_free_slot(n, slot, out);
    }
}

void node_unpin_slot(struct node *n, uint32_t slot, struct actions *out)
{
    if (n->slots[slot].pins > 0) {
        n->slots[slot].pins--;
        node_free_if_unused(n, slot, out);
    }
}

/* Such a slot stays in use for as long as a process or a read takes to end, and its bytes are of no use: one of a copy
 * that was found damaged while it is sent, or while another is made from it. */
static bool is_lost_for_now(const struct slot *s)
{
    return s->state == SLOT_QUARANTINED || (s->state == SLOT_RECEIVING && s->doomed && s->from == NONE32) ||
           (s->state == SLOT_FREE && s->pins > 0);
}

uint32_t node_slots_needed(const struct node *n, uint32_t shard)
{
    const struct node_shard *s = &n->setup->shards[shard];
    return slots_used(s->slot_count, s->storing_rank != NONE32);
}

uint32_t node_slots_used(const struct node *n, uint32_t shard)
{
    const struct node_shard *s = &n->setup->shards[shard];
    uint32_t first = n->first_slot[shard], count = s->slot_count;
    uint32_t used = node_slots_needed(n, shard);
    for (uint32_t i = first; i < first + count; i++) {
        used += s->held && is_lost_for_now(&n->slots[i]);
    }
    return used < count ? used : count;
}

uint32_t node_empty_slot(const struct node *n, uint32_t shard)
{
    uint32_t first = n->first_slot[shard], empty = NONE32, in_use = 0;
    for (uint32_t i = first + n->setup->shards[shard].slot_count; i-- > first;) {
        in_use += n->slots[i].state != SLOT_FREE || n->slots[i].pins > 0;
        if (n->slots[i].state == SLOT_FREE && n->slots[i].pins == 0 && !n->slots[i].withheld) {
            empty = i;
        }
    }
    return in_use < node_slots_used(n, shard) ? empty : NONE32;
}
