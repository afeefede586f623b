/* SPDX-License-Identifier: Apache-2.0
 * What a node machine does with the slots that it finds at its start: after a restart of the agent, the versions of its
 * term continue. */
#include "core/node_parts.h"

static struct slot slot_taken_over(const struct slot *found)
{
    struct slot s = {.shard = found->shard, .state = SLOT_FREE, .from = NONE32, .base = NONE32};
    s.withheld = found->withheld && found->state == SLOT_FREE;
    if (found->state != SLOT_RECEIVING && found->state != SLOT_FREE) {
        s.state = found->state;
        s.version = found->version;
        s.to_storage = found->to_storage;
        s.undigested = found->state == SLOT_SEALED;
        s.root = found->state == SLOT_VERIFIED ? found->root : s.root;
    }
    return s;
}

/* How far a rank had come with v, according to the slots found. A rank that stores nothing has nothing to lose. */
static enum rank_progress progress_found(const struct node *n, uint32_t rank, struct version v)
{
    bool begun = false;
    bool whole = true;
    for (uint32_t i = 0; i < n->setup->shard_count; i++) {
        if (n->setup->shards[i].storing_rank == rank) {
            uint32_t slot = node_slot_of(n, i, v);
            begun |= slot != NONE32;
            whole &= slot != NONE32 && n->slots[slot].state != SLOT_FILLING;
        }
    }
    return whole ? RANK_SEALED : begun ? RANK_FILLING : RANK_IDLE;
}

/* The owner of a found slot continues with its version. Copies of it may have been acknowledged before; the holder does
 * so again when the copy is offered. A version without an entry, as the table is full, is never reported and times
 * out. */
static void resume_slot(struct node *n, uint32_t slot)
{
    const struct slot *found = &n->slots[slot];
    const struct node_shard *shard = node_shard_of_slot(n, slot);
    uint64_t *next = &n->next_step[shard->storing_rank];
    *next = found->version.step >= *next ? found->version.step + 1 : *next;
    struct save *s = save_open(n, found->version);
    if (s == NULL) {
        return;
    }
    s->to_storage |= found->to_storage;
    for (uint32_t h = 0; found->state == SLOT_VERIFIED && h < shard->holder_count; h++) {
        n->copies[slot][h].state = COPY_DUE;
    }
    for (uint32_t r = 0; r < n->setup->rank_count; r++) {
        s->ranks[r] = (uint8_t)progress_found(n, r, found->version);
    }
}

void resume(struct node *n, const struct slot *found)
{
    for (uint32_t i = 0; i < n->slot_total; i++) {
        n->slots[i] = slot_taken_over(&found[i]);
    }
    for (uint32_t i = 0; i < n->slot_total; i++) {
        const struct slot *s = &n->slots[i];
        bool own = node_shard_of_slot(n, i)->storing_rank != NONE32;
        bool of_use = s->state != SLOT_FREE && s->state != SLOT_QUARANTINED;
        if (own && of_use && s->version.term == n->setup->term) {
            resume_slot(n, i);
        }
    }
}
