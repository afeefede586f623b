/* SPDX-License-Identifier: Apache-2.0
 * The node machine: its memory, and which part handles which event. */
#include "core/node_parts.h"
#include "core/node_pressure.h"
#include <string.h>

static uint32_t setup_slot_total(const struct node_setup *setup)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < setup->shard_count; i++) {
        total += setup->shards[i].slot_count;
    }
    return total;
}

/* Takes bytes from the caller's memory; with memory NULL it only counts. */
static void *carve(char *memory, size_t *used, size_t bytes)
{
    void *at = memory == NULL ? NULL : memory + *used;
    *used += (bytes + 15) & ~(size_t)15;
    return at;
}

/* Lays the machine out in memory, or (memory NULL) computes the bytes that it needs; the struct itself comes first. */
static size_t lay_out(const struct node_setup *setup, char *memory, struct node *n)
{
    uint32_t slots = setup_slot_total(setup);
    size_t used = 0;
    carve(memory, &used, sizeof(struct node));
    n->next_step = carve(memory, &used, setup->rank_count * sizeof(*n->next_step));
    n->first_slot = carve(memory, &used, setup->shard_count * sizeof(*n->first_slot));
    n->slots = carve(memory, &used, slots * sizeof(*n->slots));
    n->copies = carve(memory, &used, slots * sizeof(*n->copies));
    n->down = carve(memory, &used, setup->node_count * sizeof(*n->down));
    for (int i = 0; i < NODE_SAVES; i++) {
        n->saves[i].ranks = carve(memory, &used, setup->rank_count);
    }
    return used;
}

size_t node_memory(const struct node_setup *setup)
{
    struct node scratch;
    return lay_out(setup, NULL, &scratch);
}

struct node *node_init(void *memory, const struct node_setup *setup, const struct slot *slots, uint64_t now_ms)
{
    struct node *n = memory;
    memset(memory, 0, node_memory(setup));
    lay_out(setup, memory, n);
    n->setup = setup;
    n->now_ms = now_ms;
    n->slot_total = setup_slot_total(setup);
    n->decision.term = setup->term;
    uint32_t next = 0;
    for (uint32_t i = 0; i < setup->shard_count; i++) {
        n->first_slot[i] = next;
        next += setup->shards[i].slot_count;
    }
    resume(n, slots);
    return n;
}

uint32_t node_actions_max(const struct node_setup *setup)
{
    uint32_t max = 3 * NODE_SAVES + 8;
    for (uint32_t i = 0; i < setup->shard_count; i++) {
        max += setup->shards[i].slot_count * (2 + setup->shards[i].holder_count);
    }
    return max;
}

static void give_back(struct node *n, uint32_t slot, struct actions *out)
{
    if (node_give_back_step(n, slot) == GIVE_BACK_NOTHING) {
        return; /* something has happened to it since it was chosen */
    }
    if (n->slots[slot].state != SLOT_FREE) {
        node_free_slot(n, slot, out);
    }
    n->slots[slot].withheld = true;
}

/* The end of a write into a slot. If its version is over by now, no other node has to be notified. */
static void verified(struct node *n, const struct event *e, struct actions *out)
{
    const struct slot *s = &n->slots[e->slot];
    if (!version_is(s->version, e->version)) {
        return;
    }
    if (s->state == SLOT_SEALED) {
        save_verified(n, e, out);
    } else if (s->state == SLOT_RECEIVING) {
        receive_done(n, e, out);
    }
}

static void writer_gone(struct node *n, const struct event *e, struct actions *out)
{
    const struct slot *s = &n->slots[e->slot];
    if (s->state == SLOT_QUARANTINED && version_is(s->version, e->version)) {
        node_free_slot(n, e->slot, out);
    }
}

static void slot_event(struct node *n, const struct event *e, struct actions *out)
{
    if (e->slot >= n->slot_total) {
        return;
    }
    if (e->type == EVENT_VERIFIED) {
        verified(n, e, out);
    } else if (e->type == EVENT_PIN) {
        n->slots[e->slot].pins++;
    } else if (e->type == EVENT_UNPIN) {
        node_unpin_slot(n, e->slot, out);
    } else if (e->type == EVENT_WRITER_GONE) {
        writer_gone(n, e, out);
    } else if (e->type == EVENT_GIVE_BACK) {
        give_back(n, e->slot, out);
    } else if (e->type == EVENT_TAKE_BACK) {
        n->slots[e->slot].withheld = false;
    } else if (e->type == EVENT_MOVED) {
        save_moved(n, e);
    } else {
        receive_corrupt(n, e, out);
    }
}

static void rank_event(struct node *n, const struct event *e, struct actions *out)
{
    if (e->rank >= n->setup->rank_count) {
        return;
    }
    if (e->type == EVENT_BEGIN) {
        save_begin(n, e, out);
    } else if (e->type == EVENT_SEAL) {
        save_seal(n, e, out);
    } else if (e->type == EVENT_ABANDON) {
        save_abandon(n, e, out);
    } else {
        save_rank_lost(n, e, out);
    }
}

static void peer_event(struct node *n, const struct event *e, struct actions *out)
{
    if (e->node >= n->setup->node_count) {
        return;
    }
    if (e->type == EVENT_OFFER) {
        receive_offer(n, e, out);
    } else if (e->type == EVENT_REPLICA) {
        save_replica(n, e, out);
    } else if (e->type == EVENT_NODE_DOWN) {
        n->down[e->node] = true;
        save_node_down(n, e->node, out);
    } else {
        n->down[e->node] = false;
    }
}

void node_step(struct node *n, const struct event *e, struct actions *out)
{
    if (e->term != n->setup->term) {
        return;
    }
    n->now_ms = e->now_ms > n->now_ms ? e->now_ms : n->now_ms;
    switch (e->type) {
    case EVENT_BEGIN:
    case EVENT_SEAL:
    case EVENT_ABANDON:
    case EVENT_RANK_LOST:
        rank_event(n, e, out);
        break;
    case EVENT_VERIFIED:
    case EVENT_WRITER_GONE:
    case EVENT_PIN:
    case EVENT_UNPIN:
    case EVENT_CORRUPT:
    case EVENT_GIVE_BACK:
    case EVENT_TAKE_BACK:
    case EVENT_MOVED:
        slot_event(n, e, out);
        break;
    case EVENT_OFFER:
    case EVENT_REPLICA:
    case EVENT_NODE_DOWN:
    case EVENT_NODE_UP:
        peer_event(n, e, out);
        break;
    case EVENT_FETCH:
        receive_fetch(n, e, out);
        break;
    case EVENT_DECISION:
        decide_learn(n, &e->decision, out);
        break;
    case EVENT_DRAINED_HERE:
        decide_drained_here(n, e, out);
        break;
    case EVENT_TICK:
        save_tick(n, out);
        decide_tick(n, out);
        break;
    case EVENT_READY:
    case EVENT_REFUSED:
    case EVENT_PROGRESS:
    case EVENT_DRAINED:
    case EVENT_PUBLISHED:
    case EVENT_READABLE:
    case EVENT_BASED:
    case EVENT_BASE_LOST:
    case EVENT_DRAIN_ASKED:
        break; /* the coordinator's */
    }
}
