/* SPDX-License-Identifier: Apache-2.0
 * What the parts of the agent share: the agent itself, its clients, the term that it serves, and what parts report to
 * the composition (agent.c), which alone knows all of them. */
#ifndef TCK_AGENT_CONTEXT_H
#define TCK_AGENT_CONTEXT_H

#include "agent/state/hard_state.h"
#include "agent/state/restore_timeout.h"
#include "agent/state/wire.h"
#include "base/failpoint.h"
#include "base/ipc.h"
#include "base/log.h"
#include "base/pool.h"
#include "core/coordinator.h"
#include "core/holder.h"
#include "core/node.h"
#include "recovery/catalog.h"
#include "recovery/recovery.h"
#include "tiers/memory.h"
#include "tiers/peer.h"
#include "tiers/persistent.h"

#include <stdatomic.h>
#include <stdio.h>

struct agent;
struct term_context;
struct claims;
struct connectivity;
struct fdstore;
struct health;
struct ipc_server;
struct metadata;
struct recover;
struct reservations;
struct save_dir_check;
struct scrub;
struct storage_ops;
struct storage_scrub;

enum { PIDFD_NONE = -1 };

/* One connection: a trainer after HELLO, a command if it only sends CONTROL. */
struct client {
    struct client *next;
    struct agent *agent;
    uint64_t id; /* for late replies: never reused, unlike fd */
    struct loop_fd *source;
    struct loop_fd *pid_source;
    struct process process;
    int fd;
    int pidfd; /* of a trainer: signals it after the loss of a node, and shows that it has ended */
    uint32_t rank, world_size;
    char *settings;   /* configuration of its start, until it has joined; NULL: it sent none */
    uint64_t claimed; /* term, 0 none */
    uint64_t term;    /* joined, 0 before JOIN */
    struct shared_status *shared;
    uint32_t begin_seq;    /* of the BEGIN being answered */
    uint32_t join_seq;     /* JOIN waiting for sessions, 0 none */
    uint32_t register_seq; /* REGISTER waiting for memory, then for sessions, 0 none */
    uint32_t restore_seq;
    uint64_t meet_since_ms; /* waits for sessions */
    uint64_t restore_step;
    uint64_t restore_since_ms;              /* without a session that it needs */
    struct restore_timeout restore_timeout; /* with what it lacks, since it asked */
    uint64_t kill_ms;                       /* sent SIGTERM: killed after this; 0: not */
    bool trainer;
    bool takeover;
    bool returning; /* reconnected to a restarted agent */
    bool will_ask;  /* a RESTORE of a given step will follow */
    bool restoring; /* RESTORE waiting */
    bool restore_may_lack;
    bool done; /* detached */
    char run_id[CONFIG_RUN];
};

/* A shard of node_setup.shards, and where its slots are. */
struct local_shard {
    struct segment *segment;
    uint32_t first_slot;   /* number of its slot 0 in the node machine */
    uint8_t restored_from; /* enum source_kind of the last fetch */
    bool gone;             /* a leftover whose segment was freed */
    uint32_t repair_tries; /* sources tried for a copy that is missing here */
    uint64_t repair_after_ms;
    uint32_t failed_fetches;                 /* since one succeeded */
    uint64_t complained_ms;                  /* time of the last one that was logged */
    uint64_t quarantined_ms[CORE_SLOTS_MAX]; /* since when it is known that a slot is in quarantine; 0: it is not */
};

/* The node machine's answer to a question: EVENT_OFFER, EVENT_FETCH, or EVENT_VERIFIED of a copy that was offered. */
struct node_answer {
    bool given;
    struct action action; /* STORE, REJECT_OFFER, ACK_OFFER, FETCH_SLOT */
};

struct queued_event {
    bool for_coordinator;
    struct event event;
    struct node_answer *answer; /* of the caller, which waits for it; NULL: there is none */
};

/* A node that is down; its agent may be restarting. */
struct lost_node {
    uint64_t since_ms; /* 0: it is not */
    bool acted;
    char why[96];
};

#define REFUSAL_NUMBER(name, text) REFUSAL_NUMBER_##name,
enum { REFUSAL_NUMBER_NONE, REFUSAL_MAP(REFUSAL_NUMBER) REFUSAL_KINDS };
#undef REFUSAL_NUMBER

struct term_context {
    struct agent *agent;
    struct world world;
    struct placement placement;
    uint32_t self;
    uint32_t rank_count;
    uint32_t *ranks; /* world ranks of this node, ascending; index = local rank */
    struct node_setup setup;
    struct node_shard *shards;
    struct local_shard *local_shards; /* one per shards entry */
    void *node_block;
    struct node *node;
    struct coordinator_setup coordinator_setup;
    bool *drains;
    void *coordinator_block;
    struct coordinator *coordinator; /* NULL unless self is 0 */
    struct actions actions;
    struct queued_event *queue;
    uint32_t queue_count, queue_cap;
    bool stepping;
    bool closed;                             /* a newer term was adopted: nothing is saved or sent any more */
    struct peer **peers;                     /* by node, NULL for self */
    struct lost_node *lost;                  /* by node */
    struct log_limit refused[REFUSAL_KINDS]; /* saves, since one was granted */
    bool *registered;                        /* coordinator: by node */
    uint32_t registered_count;
    struct wire_readable readable; /* the coordinator's newest outcome, for asked_step */
    bool readable_known;
    uint64_t all_registered_ms;
    bool asked; /* a trainer asked to restore asked_step before a recovery had begun */
    uint64_t asked_step;
    uint64_t told_registered_ms, tell_registered_pause_ms;
    uint64_t fetches_came, fetches_failed;
    struct twins *twins;  /* coordinator: roots reported of the newest versions */
    uint64_t divergences; /* twins whose roots differed */
    bool restore_noted;   /* coordinator: what the trainers have restored was noted in the save directory, */
    bool end_noted;       /* that the job is done */
    uint32_t storage_ops; /* begun in it */
    struct term_context *next_left;
};

struct settings {
    uint64_t mem_steps, storage_steps, from_step;
    uint64_t mem_target, storage_target;
};

/* Trainers of a restarted agent, which reconnect by themselves, and hold their job until then. */
struct awaited {
    uint64_t term; /* 0: none */
    uint64_t until_ms;
    uint32_t first_rank, count, world_size;
};

/* Calls from parts to those above them. A part calls those below it by name, and never one above it; agent.c fills in
 * this table. */
struct agent_hooks {
    void (*client_frame)(struct client *client, const struct ipc_frame *frame);
    /* The connection has been removed from the list, and is freed when this returns. */
    void (*client_gone)(struct client *client);
    /* From another agent of the term, or from this node to itself as the coordinator. */
    void (*message)(struct term_context *tc, uint32_t node, uint16_t type, const void *data, size_t len);
    void (*beat)(struct agent *agent, const struct wire_beat *m);
    void (*carry_out)(struct term_context *tc, const struct action *action);
    /* A decision was applied, with all actions that follow from it. */
    void (*decided)(const struct term_context *tc);
    /* No operation on slots is under way any longer. */
    void (*slots_idle)(struct agent *agent);
    /* newer: than any term adopted before. */
    void (*term_adopted)(struct agent *agent, uint64_t term, bool newer);
    /* Another term is about to take over: ends what the previous one still does. */
    void (*term_replaced)(struct agent *agent);
    /* A fetch has brought a shard; one that repairs a copy has ended. */
    void (*shard_arrived)(struct term_context *tc);
    void (*shard_repaired)(struct term_context *tc, bool ok);
};

/* There is one per process. Its members are grouped by their meaning. */
struct agent { /* NOLINT(clang-analyzer-optin.performance.Padding) */
    const struct agent_hooks *hooks;
    uint32_t pool_threads; /* of pool */
    bool allocating;       /* a pool thread is changing the memory tier: no other may read it */
    struct config config;
    struct config given; /* as given at start, without later changes */
    char *given_text;    /* of a start that had the same; NULL: none since it changed */
    bool spawned;        /* by a trainer, with the file in the runtime directory */
    struct loop *loop;
    struct pool *pool;     /* digests and page faults */
    struct pool *io;       /* calls that may hang in storage, apart from digests */
    struct pool *claiming; /* claims only, which must not wait behind hanging drains */
    struct fdstore *fdstore;
    struct hard_state *state;
    struct memory *memory;
    struct persistent *persistent;
    struct peers *peers;
    struct catalog *catalog; /* NULL if it cannot be opened: it is only a hint */
    struct secret secret;
    struct health *health; /* of storage */
    struct storage_ops *storage_ops;
    struct metadata *metadata;
    struct reservations *reservations;
    struct save_dir_check *save_dir_check;
    struct connectivity *connectivity;
    int lock_fd; /* shows that there is an agent */
    struct ipc_server *ipc_server;
    struct client *clients;
    struct log_limit refused_hellos;
    struct claims *claims;
    struct awaited awaited;              /* trainers that were here before this agent was started again */
    struct term_context *term_context;   /* of the last registered term, NULL before */
    struct registration *registration;   /* a registration under way */
    struct recover *recover;             /* on the coordinator */
    struct recover *dry;                 /* a plan being made for the command */
    struct fetch *fetches;               /* under way */
    struct gathering *gathering;         /* manifest of the drain under way, on the coordinator */
    uint32_t ops;                        /* operations under way that read or write slots, but for those on storage */
    struct settings settings;            /* in force (shared, beats) */
    uint64_t mem_due_ms, storage_due_ms; /* coordinator: intervals in seconds */
    uint64_t idle_since_ms;              /* no trainer since; 0: there is one */
    uint64_t deaf_ms;                    /* others cannot connect since; 0: they can */
    bool job_done;
    bool stop_forced; /* exits although trainers run */
    bool leaving;     /* agent_free has begun: nothing new is started */
    struct scrub *scrub;
    struct storage_scrub *storage_scrub;
    struct loop_timer *tick;
    struct loop_timer *slow_tick;
    uint64_t stale_messages; /* of older terms, dropped */
};

#endif
