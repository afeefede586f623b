/* SPDX-License-Identifier: Apache-2.0
 * The node machine's state, and what all its parts (node_parts.h) do with slots.
 *
 * A version that this node takes part in has an entry in `saves` from its first BEGIN, its refusal, or the start
 * that found its slots, until a decision on it is learned. An entry is either on its way to READY or refused. One
 * that was READY may still become refused (corruption): the coordinator acts on what it receives first, and this node
 * keeps the slots until it learns which that was. A refusal is forgotten when the agent dies: if no other node has
 * received it, the next agent may report the version as ready. So trainers learn that a version has failed when its
 * decision is learned, not before.
 *
 * A version that is not READY is refused if nothing of it has moved for version_timeout_ms. Each piece counts once: a
 * rank that begins or seals, a chunk that is digested, a chunk that is sent to a holder or that the holder reports to
 * have copied from the base, a copy that is acknowledged. A copy that is compared with its base moves, too.
 * If a copy fails and begins from the front, its chunks count again, but only COPY_RESTARTS times: a connection that
 * breaks in the middle of a long copy costs no version, and a copy that fails again and again does not keep one
 * undecided for ever. The time of a version begins when the last older one here is decided,
 * because that one may occupy the links, or slots of holders. So versions that do not move end one after the other. */
#ifndef TCK_CORE_NODE_STATE_H
#define TCK_CORE_NODE_STATE_H

#include "core/node.h"

#define NODE_SAVES    (CORE_SLOTS_MAX + 2)
#define COPY_RESTARTS 4 /* of one copy, whose chunks count as progress again */

enum rank_progress { RANK_IDLE, RANK_FILLING, RANK_SEALED };

struct save {
    struct version version; /* VERSION_NONE: entry not in use */
    enum refusal refusal;
    bool ready, to_storage;
    uint64_t moved_ms;     /* when something of it moved last */
    bool unreported;       /* the coordinator has not been notified of that, */
    uint64_t report_ms;    /* and is not before this */
    uint64_t next_send_ms; /* READY or REFUSED again */
    uint8_t *ranks;        /* rank_count of enum rank_progress */
};

enum copy_state {
    COPY_NONE,
    COPY_DUE, /* to be sent at retry_ms, or later if an older version comes first */
    COPY_SENDING,
    COPY_CANCELED, /* was being sent when its version was over, and has not ended yet */
    COPY_ACKED
};

/* One slot's copy at one holder. */
struct copy {
    enum copy_state state;
    uint64_t retry_ms;
    uint64_t sent;     /* the bytes that have counted as progress since this was last set to 0 */
    uint32_t restarts; /* how many times that was */
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

/* The entry of this version, NULL or NONE32 if it has none; that of VERSION_NONE is not in use. */
uint32_t node_save_index(const struct node *n, struct version v);
struct save *node_save(struct node *n, struct version v);
struct version node_version(const struct node *n, uint64_t step);
enum fate node_fate(const struct node *n, struct version v);
const struct node_shard *node_shard_of_slot(const struct node *n, uint32_t slot);
/* The only function that changes the state of a slot; emits WRITE_HEADER. */
void node_set_slot(struct node *n, uint32_t slot, enum slot_state state, struct version version, struct actions *out);
void node_free_slot(struct node *n, uint32_t slot, struct actions *out);
/* For a slot that is being filled by a trainer whose connection has ended. */
void node_quarantine_slot(struct node *n, uint32_t slot, struct actions *out);
/* Frees a doomed slot unless it is still written or read, or, at an owner, drained. */
void node_free_if_unused(struct node *n, uint32_t slot, struct actions *out);
/* One reader of the slot has ended. */
void node_unpin_slot(struct node *n, uint32_t slot, struct actions *out);
/* How many slots of the shard this node needs. */
uint32_t node_slots_needed(const struct node *n, uint32_t shard);
/* How many slots of the shard this node uses: those that it needs and, as far as there are more, one instead of each
 * that is in quarantine, or into which a read from storage that is no longer wanted still writes, or which is read
 * although its copy was found damaged. */
uint32_t node_slots_used(const struct node *n, uint32_t shard);
/* A slot of the shard that may be filled, NONE32 if none. */
uint32_t node_empty_slot(const struct node *n, uint32_t shard);

#endif
