/* SPDX-License-Identifier: Apache-2.0
 * A node machine with memory of its own and the actions of its last event, for the tests of runtime/core.
 *
 * The world has three nodes. The machine is node 1 with two ranks: rank 0 stores shard 10 (holder: node 2), rank 1
 * stores shard 11 (holders: nodes 2 and 0); it holds shard 20 for others, whose third slot has no pages, and drains
 * shard 10. */
#ifndef TCK_TESTS_CORE_MACHINE_H
#define TCK_TESTS_CORE_MACHINE_H

#include "core/node.h"
#include <criterion/criterion.h>
#include <stdlib.h>

#define MACHINE_TERM    5
#define MACHINE_RETRY   100
#define MACHINE_TIMEOUT 1000
#define OWN_SHARD       10
#define OTHER_OWN_SHARD 11
#define HELD_SHARD      20

struct machine {
    struct node_shard shards[3];
    struct node_setup setup;
    struct slot found[16];
    void *memory;
    struct node *node;
    struct action items[256];
    struct actions out;
    uint64_t now;
};

static inline struct version v(uint64_t step)
{
    return (struct version){MACHINE_TERM, step};
}

static inline struct hash128 root_of(uint64_t n)
{
    return (struct hash128){n, n};
}

static inline void machine_start(struct machine *m)
{
    free(m->memory);
    m->memory = malloc(node_memory(&m->setup));
    m->node = node_init(m->memory, &m->setup, m->found, m->now);
    cr_assert(node_actions_max(&m->setup) <= 256);
    m->out = (struct actions){.items = m->items, .cap = node_actions_max(&m->setup)};
}

static inline void machine_new(struct machine *m, uint32_t slots)
{
    *m = (struct machine){.now = 1000};
    m->shards[0] = (struct node_shard){.world_shard = OWN_SHARD,
                                       .source = 1,
                                       .slot_count = slots,
                                       .storing_rank = 0,
                                       .holder_count = 1,
                                       .holders = {2},
                                       .drains_here = true};
    m->shards[1] = (struct node_shard){.world_shard = OTHER_OWN_SHARD,
                                       .source = 1,
                                       .slot_count = slots,
                                       .storing_rank = 1,
                                       .holder_count = 2,
                                       .holders = {2, 0}};
    m->shards[2] =
        (struct node_shard){.world_shard = HELD_SHARD, .slot_count = slots, .storing_rank = NONE32, .held = true};
    m->setup = (struct node_setup){.term = MACHINE_TERM,
                                   .self = 1,
                                   .node_count = 3,
                                   .rank_count = 2,
                                   .shard_count = 3,
                                   .shards = m->shards,
                                   .version_timeout_ms = MACHINE_TIMEOUT,
                                   .retry_ms = MACHINE_RETRY};
    for (uint32_t i = 0; i < 3 * slots; i++) {
        m->found[i].shard = i / slots;
        m->found[i].withheld = i >= 2 * slots + HELD_SLOTS;
    }
    machine_start(m);
}

static inline void machine_step(struct machine *m, struct event e)
{
    e.term = MACHINE_TERM;
    e.now_ms = m->now;
    m->out.count = 0;
    node_step(m->node, &e, &m->out);
    cr_assert(m->out.count <= m->out.cap, "more actions than promised: %u > %u", m->out.count, m->out.cap);
}

static inline void machine_tick(struct machine *m, uint64_t ms)
{
    m->now += ms;
    machine_step(m, (struct event){.type = EVENT_TICK});
}

/* The nth action of this type of the last event, NULL if there are fewer. */
static inline const struct action *action_nth(const struct machine *m, enum action_type type, uint32_t nth)
{
    for (uint32_t i = 0; i < m->out.count; i++) {
        if (m->items[i].type == type && nth-- == 0) {
            return &m->items[i];
        }
    }
    return NULL;
}

static inline const struct action *action_of(const struct machine *m, enum action_type type)
{
    return action_nth(m, type, 0);
}

static inline uint32_t actions_of(const struct machine *m, enum action_type type)
{
    uint32_t count = 0;
    while (action_nth(m, type, count) != NULL) {
        count++;
    }
    return count;
}

/* True if the last event reported this stage of the version to trainers. */
static inline bool told(const struct machine *m, struct version version, enum stage what)
{
    for (uint32_t i = 0; i < m->out.count; i++) {
        const struct action *a = &m->items[i];
        if (a->type == ACTION_NOTIFY && version_is(a->version, version) && a->stage == what) {
            return true;
        }
    }
    return false;
}

static inline void begin(struct machine *m, uint32_t rank, uint64_t step)
{
    machine_step(m, (struct event){.type = EVENT_BEGIN, .rank = rank, .version = {0, step}});
}

static inline void seal(struct machine *m, uint32_t rank, uint64_t step)
{
    machine_step(m, (struct event){.type = EVENT_SEAL, .rank = rank, .version = {0, step}});
}

static inline uint32_t slot_of(const struct machine *m, uint32_t world_shard, struct version version)
{
    return node_slot_of(m->node, node_shard_of(m->node, world_shard), version);
}

static inline enum slot_state state_of(const struct machine *m, uint32_t world_shard, struct version version)
{
    uint32_t slot = slot_of(m, world_shard, version);
    return slot == NONE32 ? SLOT_FREE : node_slot(m->node, slot)->state;
}

static inline void verified(struct machine *m, uint32_t world_shard, struct version version, bool ok)
{
    machine_step(m, (struct event){.type = EVENT_VERIFIED,
                                   .slot = slot_of(m, world_shard, version),
                                   .version = version,
                                   .root = root_of(world_shard),
                                   .ok = ok});
}

static inline void replica(struct machine *m, uint32_t node, uint32_t world_shard, struct version version,
                           enum refusal refusal)
{
    machine_step(m, (struct event){.type = EVENT_REPLICA,
                                   .node = node,
                                   .shard = world_shard,
                                   .version = version,
                                   .root = root_of(world_shard),
                                   .ok = refusal == REFUSAL_NONE,
                                   .refusal = refusal});
}

static inline void offer(struct machine *m, uint32_t node, struct version version, struct hash128 root)
{
    machine_step(
        m, (struct event){.type = EVENT_OFFER, .node = node, .shard = HELD_SHARD, .version = version, .root = root});
}

static inline void decide(struct machine *m, struct decision d)
{
    d.term = MACHINE_TERM;
    machine_step(m, (struct event){.type = EVENT_DECISION, .decision = d});
}

/* Both ranks have copied the step and its digests are computed; copies are in flight. */
static inline void save_until_verified(struct machine *m, uint64_t step)
{
    begin(m, 0, step);
    begin(m, 1, step);
    seal(m, 0, step);
    seal(m, 1, step);
    verified(m, OWN_SHARD, v(step), true);
    verified(m, OTHER_OWN_SHARD, v(step), true);
}

/* READY was sent with the last event. */
static inline void save_until_ready(struct machine *m, uint64_t step)
{
    save_until_verified(m, step);
    replica(m, 2, OWN_SHARD, v(step), REFUSAL_NONE);
    replica(m, 2, OTHER_OWN_SHARD, v(step), REFUSAL_NONE);
    replica(m, 0, OTHER_OWN_SHARD, v(step), REFUSAL_NONE);
}

#endif
