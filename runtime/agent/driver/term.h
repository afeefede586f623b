/* SPDX-License-Identifier: Apache-2.0
 * One joined term on this node: the data shared by all parts that work on it. term_context.h creates it. */
#ifndef TCK_AGENT_TERM_H
#define TCK_AGENT_TERM_H

#include "agent/state/wire.h"
#include "base/log.h"
#include "base/world.h"
#include "core/coordinator.h"
#include "core/node.h"
#include "recovery/placement.h"

struct agent;
struct client;
struct config;
struct hard_state;
struct memory;
struct moving;
struct peer;
struct segment;
struct term_context;
struct twins;

/* Events of a term that higher-level parts handle. */
struct term_hooks {
    /* From another agent of the term, or from this node to itself as the coordinator. */
    void (*message)(struct term_context *tc, uint32_t node, uint16_t type, const void *data, size_t len);
    void (*carry_out)(struct term_context *tc, const struct action *action);
    /* Either an event is about to be handled, or an action to be carried out; the other one is NULL. */
    void (*note)(const struct term_context *tc, const struct event *event, const struct action *action);
    /* A decision was applied, with all actions that follow from it. */
    void (*decided)(const struct term_context *tc);
};

/* Dependencies. */
struct term_setup {
    const struct config *config;
    struct hard_state *state;
    const struct memory *memory;
    struct client *const *clients; /* the current list */
    const struct term_hooks *hooks;
    struct agent *agent; /* passed to the hooks; opaque to all parts */
};

/* What was found to be the same in a version and its base, for all holders and all attempts. A version is compared with
 * its base once, while all copies of it wait for that. */
struct unchanged {
    struct version version, base; /* VERSION_NONE: nothing was compared */
    struct hash128 root, base_root;
    uint8_t *same; /* owned; one bit per chunk */
    uint64_t bytes;
};

/* A shard of node_setup.shards, and where its slots are. */
struct local_shard {
    struct segment *segment;
    uint32_t first_slot;     /* number of its slot 0 in the node machine */
    struct version restored; /* that the recovery has brought last; VERSION_NONE: none */
    uint8_t restored_from;   /* enum source_kind of it */
    bool gone;               /* a leftover whose segment was freed */
    uint32_t repair_tries;   /* sources tried for a copy that is missing here */
    uint64_t repair_after_ms;
    uint32_t failed_fetches;                 /* since one succeeded */
    uint64_t failure_logged_ms;              /* time of the last one that was logged */
    struct hash128 drained;                  /* root of the copy that was written to storage last */
    struct version drained_version;          /* of it; VERSION_NONE: none was */
    struct unchanged unchanged;              /* in the version that was copied to other nodes last */
    uint64_t quarantined_ms[CORE_SLOTS_MAX]; /* when a slot was first seen in quarantine; 0: it is not */
};

/* The node machine's answer to an event that requires one: EVENT_OFFER, EVENT_FETCH, or EVENT_VERIFIED of a copy that
 * was offered. */
struct node_answer {
    bool given;
    struct action action; /* STORE, REJECT_OFFER, ACK_OFFER, FETCH_SLOT */
};

struct queued_event {
    bool for_coordinator;
    struct event event;
    struct node_answer *answer; /* where the waiting caller wants it; NULL: no caller waits */
};

/* A node that is down; its agent may be restarting. Each agent has one of these for each node. */
struct lost_node {
    uint64_t since_ms; /* 0: it is up */
    bool acted;
    char *why; /* owned; NULL: no memory for it */
};

#define REFUSAL_NUMBER(name, text) REFUSAL_NUMBER_##name,
enum { REFUSAL_NUMBER_NONE, REFUSAL_MAP(REFUSAL_NUMBER) REFUSAL_KINDS };
#undef REFUSAL_NUMBER

struct term_context {
    struct term_setup needs;
    struct world world;
    struct placement placement;
    uint32_t self;
    uint32_t rank_count;
    uint32_t *ranks; /* world ranks of this node, ascending; index = local rank */
    struct node_setup setup;
    struct node_shard *shards;
    struct local_shard *local_shards; /* one per shards entry */
    uint32_t *in_world;               /* of them, those that this node owns or holds, in the order of the world */
    void *node_block;
    struct node *node;
    struct coordinator_setup coordinator_setup;
    bool *drains;
    void *coordinator_block;
    struct coordinator *coordinator; /* NULL unless self is 0 */
    struct actions actions;
    struct queued_event *queue;
    uint32_t queue_count, queue_cap;
    struct moving *moving;          /* digests and copies under way */
    struct comparison *comparisons; /* of slots with their bases, under way (comparison.c) */
    bool stepping;
    bool closed;                             /* a newer term was adopted: nothing is saved or sent any more */
    struct peer **peers;                     /* by node, NULL for self */
    struct lost_node *lost;                  /* by node */
    uint32_t lost_count;                     /* of them that are down */
    uint32_t in_world_count;                 /* entries of in_world */
    struct log_limit refused[REFUSAL_KINDS]; /* saves, since one was granted */
    bool *registered;                        /* coordinator: by node */
    uint32_t registered_count;
    struct wire_readable readable; /* the coordinator's newest outcome, for asked_step */
    bool readable_known;
    bool asked; /* a trainer asked to restore asked_step before a recovery had begun */
    uint64_t all_registered_ms;
    uint64_t asked_step;
    uint64_t registered_sent_ms, registered_pause_ms;
    uint64_t fetches_arrived, fetches_failed, fetched_bytes;
    struct twins *twins;  /* coordinator: roots reported of the newest versions */
    uint64_t divergences; /* twins whose roots differed */
    bool end_noted;       /* the end of the job was noted in save_dir */
    uint32_t storage_ops; /* begun in it */
    struct term_context *next_left;
};

#endif
