/* SPDX-License-Identifier: Apache-2.0
 * The node machine's state, shared by its parts: node.c (memory, dispatch, helpers), node_save.c (versions this node
 * saves), node_hold.c (copies it holds or fetches), node_resume.c (what it finds at its start), node_decide.c (what a
 * decision changes, retries).
 *
 * A version this node takes part in has an entry in `saves` from its first BEGIN, its refusal, or the start that found
 * its slots, until a decision on it is learned. An entry is either on its way to READY or refused; one that was READY
 * may still turn refused (time-out, corruption): the coordinator goes by what it hears first, and this node keeps the
 * slots until it learns which. A refusal is forgotten with the agent: if nobody has heard it, the next one may report
 * the version ready. So trainers hear that one has failed when its decision is learned, not before. */
#ifndef TCK_CORE_NODE_INTERNAL_H
#define TCK_CORE_NODE_INTERNAL_H

#include "core/node.h"

#define NODE_SAVES (CORE_SLOTS_MAX + 2)

enum rank_progress { RANK_IDLE, RANK_FILLING, RANK_SEALED };

struct save {
    struct version version; /* VERSION_NONE: entry not in use */
    enum refusal refusal;
    bool ready, to_storage;
    uint64_t deadline_ms, next_send_ms;
    uint8_t *ranks; /* rank_count of enum rank_progress */
};

enum copy_state { COPY_NONE, COPY_SENDING, COPY_FAILED, COPY_ACKED };

/* One slot's copy at one holder. */
struct copy {
    enum copy_state state;
    uint64_t retry_ms;
};

enum drain_state { DRAIN_NONE, DRAIN_RUNNING, DRAIN_ENDED };

struct drain {
    enum drain_state state;
    struct version version;
    uint64_t attempt, next_send_ms;
    bool ok;
};

struct node {
    const struct node_setup *setup;
    uint64_t now_ms;
    uint32_t slot_total;
    struct decision decision;
    struct drain drain;
    struct save saves[NODE_SAVES];
    uint64_t *next_step;  /* per rank: no step below it may begin */
    uint32_t *first_slot; /* per shard */
    struct slot *slots;
    struct copy (*copies)[CORE_HOLDERS_MAX]; /* per slot, in the order of the shard's holders */
    bool *down;                              /* per node of the world */
};

/* node.c */
struct version node_version(const struct node *n, uint64_t step);
enum fate node_fate(const struct node *n, struct version v);
const struct node_shard *node_shard_of_slot(const struct node *n, uint32_t slot);
/* The only way a slot changes its state; emits WRITE_HEADER. */
void node_set_slot(struct node *n, uint32_t slot, enum slot_state state, struct version version, struct actions *out);
void node_free_slot(struct node *n, uint32_t slot, struct actions *out);
/* One that is being filled by a trainer whose connection is over. */
void node_quarantine_slot(struct node *n, uint32_t slot, struct actions *out);
/* Frees a doomed slot unless it is still written, read or drained. */
void node_free_if_unused(struct node *n, uint32_t slot, struct actions *out);
/* A slot of the shard that may be filled, NONE32 if none. */
uint32_t node_empty_slot(const struct node *n, uint32_t shard);

/* node_save.c */
void save_begin(struct node *n, const struct event *e, struct actions *out);
void save_seal(struct node *n, const struct event *e, struct actions *out);
void save_abandon(struct node *n, const struct event *e, struct actions *out);
void save_rank_lost(struct node *n, const struct event *e, struct actions *out);
void save_verified(struct node *n, const struct event *e, struct actions *out);
void save_replica(struct node *n, const struct event *e, struct actions *out);
void save_node_down(struct node *n, uint32_t node, struct actions *out);
/* This node will not (any more) report v as protected; told to the coordinator until v is decided. */
void save_refuse(struct node *n, struct version v, enum refusal refusal, struct actions *out);
void save_tick(struct node *n, struct actions *out);
/* The version's entry, a new one if it has none; NULL if the table is full. */
struct save *save_open(struct node *n, struct version v);
/* Drops the entries that the decision has decided, and tells the trainers. */
void save_settle(struct node *n, struct actions *out);

/* node_resume.c */
/* Takes over the slots found at the start, and takes up those of its versions that this node saves. */
void resume(struct node *n, const struct slot *found);

/* node_hold.c */
void hold_offer(struct node *n, const struct event *e, struct actions *out);
void hold_received(struct node *n, const struct event *e, struct actions *out);
void hold_fetch(struct node *n, const struct event *e, struct actions *out);
void hold_corrupt(struct node *n, const struct event *e, struct actions *out);

/* node_decide.c */
void decide_learn(struct node *n, const struct decision *d, struct actions *out);
void decide_drained_here(struct node *n, const struct event *e, struct actions *out);
void decide_tick(struct node *n, struct actions *out);

#endif
