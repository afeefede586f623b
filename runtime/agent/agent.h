/* SPDX-License-Identifier: Apache-2.0
 * The agent: the composition root, the only code that sees tiers and recovery together. One event loop owns everything
 * here; pool threads only hash, read and write bytes. Prototypes are grouped by the file that defines them.
 *
 *   clients.c  trainers' and commands' sockets       term context.c  one joined term: world, duties, machines
 *   claim.c, holders.c  a term is claimed, unless trainers that are alive would lose their job; fence.c those that do
 *   reserving.c  terms for the starts to come
 *   settings.c a start with another configuration
 *   join.c, meet.c  attach and register              drive.c      events into the machines, actions out
 *   exchange.c messages with other agents            copies.c     copies others bring here or fetch from here
 *   drain.c    this node's part of a drain; publishing
 *   fetch.c    getting one shard into a slot         recover*.c   the coordinator's recovery
 *   restore.c  restores as trainers ask for them     trainers.c   shared status pages, settings, trainers ended on a
 * node's loss control.c  requests of the command               linger.c     when to leave scrub.c    checking what lies
 * in memory, repairing what is missing; scrub_storage.c what is published metadata writer.c   catalog rows and notes
 * twins.c      data-parallel copies that must be equal fd store.c  the supervisor                            state.c
 * what survives the agent's death patience.c how long a trainer waits for shards   hearing.c    when others cannot
 * connect any more health.c   what users have to know               storage.c    storage that hangs writers.c  which
 * trainers may still write into slots that are no longer theirs
 */
#ifndef TCK_AGENT_AGENT_H
#define TCK_AGENT_AGENT_H

#include "agent/lifecycle/hard_state.h"
#include "agent/recovery/restore_timeout.h"
#include "agent/replication/wire.h"
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
struct fdstore;
struct recover;
struct scrub;
struct storage_scrub;

/* ---- clients.c ----------------------------------------------------------------------------------------------- */

enum { PIDFD_NONE = -1 };

/* One connection: a trainer after HELLO, a command if it only sends CONTROL. */
struct client {
    struct client *next;
    struct agent *agent;
    uint64_t id; /* for answers that come late: of no other connection, unlike fd */
    struct loop_fd *source;
    struct loop_fd *pid_source;
    struct process process;
    int fd;
    int pidfd; /* of a trainer; ends it on node loss, and says when it is gone */
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
    uint64_t kill_ms;                       /* told to end: killed after this; 0 not told */
    bool trainer;
    bool takeover;
    bool returning; /* came back to an agent that was started again */
    bool will_ask;  /* RESTORE of a given step comes next */
    bool restoring; /* RESTORE waiting */
    bool restore_may_lack;
    bool done; /* detached */
    char run_id[CONFIG_RUN];
};

/* Before storage, catalog and network are touched. TCK_ERR_EXIST if there is another agent of this job and node. */
must_check tck_status_t ipc_server_lock(struct agent *agent, struct error *err);
must_check tck_status_t ipc_server_listen(struct agent *agent, struct error *err);
void ipc_server_close(struct agent *agent);
/* Sends one frame of an encoded payload with descriptors beside it. What cannot be sent cuts the connection: better
 * than a client that waits for ever. */
void client_send_fds(struct client *client, uint32_t type, const struct writer *w, const int *fds, uint32_t count);
void client_send(struct client *client, uint32_t type, const struct writer *w);
/* Ends the connection through its own event, so that the client stays valid for the caller. */
void client_cut(struct client *client, const char *why);
/* From now on notices the end of the client's process, even if a child of it keeps the socket open. */
void client_watch_process(struct client *client);
/* NULL if that connection is over. */
struct client *client_by_id(const struct agent *agent, uint64_t id);
void client_error(struct client *client, uint32_t type, uint32_t seq, const struct error *err);
void client_ok(struct client *client, uint32_t seq);
/* The connected trainer of a rank in this term, NULL if none. */
struct client *client_of_rank(const struct agent *agent, uint64_t term, uint32_t rank);
uint32_t clients_trainers(const struct agent *agent);
/* Ends what waits for an answer of a term older than this one, with an error that says that it is over. */
void clients_term_over(struct agent *agent, uint64_t term);

/* ---- term context.c --------------------------------------------------------------------------------------------- */

/* A shard of node_setup.shards, with where its slots lie. */
struct local_shard {
    struct segment *segment;
    uint32_t first_slot;   /* number of its slot 0 in the node machine */
    uint8_t restored_from; /* enum source_kind of the last fetch */
    bool gone;             /* a leftover whose segment was given back */
    uint32_t repair_tries; /* places asked for the copy that is missing here */
    uint64_t repair_after_ms;
    uint32_t failed_fetches;                 /* since one succeeded */
    uint64_t complained_ms;                  /* of the last of them that was logged */
    uint64_t quarantined_ms[CORE_SLOTS_MAX]; /* since when it is known that a slot is in quarantine; 0: it is not */
};

/* A call to storage, or several one after the other; embedded in what it is for, which stays until storage_end. */
struct storage_op {
    struct storage_op *next;
    struct agent *agent;
    struct term_context *tc; /* which stays as long, too; NULL: it needs none */
    struct pool *pool;       /* that it is in; NULL: io */
    const char *what;        /* for errors */
    uint64_t since_ms;
    struct progress progress; /* of its own calls; as long as none is under way, it may be in a queue */
    bool late;                /* it has hung, and was given up */
    /* Either may be NULL. Called when it has hung in its term, so that those who wait for it get the error. */
    void (*give_up)(void *ctx, const struct error *why);
    /* Another term is about to take over all slots, and what storage still brings must not get into them. */
    void (*left_behind)(void *ctx);
    void *ctx;
};

struct queued_event {
    bool for_coordinator;
    struct event event;
};

/* A node that is down; its agent may come back in a moment. */
struct lost_node {
    uint64_t since_ms; /* 0: it is not */
    bool acted;
    char why[96];
};

/* How many there are. */
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
    struct wire_readable readable; /* newest answer of the coordinator; asked_step tells to what */
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

/* Takes over world and placement on success. Segments of all duties must exist. decision: kept one or NULL. */
must_check tck_status_t term_context_new(struct agent *agent, struct world *world, struct placement *placement,
                                         const struct decision *decision, struct term_context **out, struct error *err);
void term_context_free(struct term_context *tc);
/* Index into duties of a shard; NONE32 if this node has no slots for it. */
uint32_t term_context_shard(const struct term_context *tc, struct hash128 shard);
/* The duty and slot within its segment of a machine slot number. */
struct local_shard *term_context_slot(const struct term_context *tc, uint32_t slot, uint32_t *slot_in_segment);
int64_t term_context_local_rank(const struct term_context *tc, uint32_t rank);
bool term_context_is_coordinator(const struct term_context *tc);
/* Local rank: has its trainer, which cannot say so any more, sealed what it was filling? */
void term_context_take_seal(struct term_context *tc, uint32_t rank);
/* The same for all whose trainers are not connected. */
void term_context_take_seals(struct term_context *tc);
/* Digests of versions of older terms are still to be made: until then they are in no inventory. */
bool term_context_digests_due(const struct term_context *tc);
/* Does this world rank hold this world shard? */
bool world_rank_has(const struct world *world, uint32_t shard, uint32_t rank);

/* ---- agent.c ------------------------------------------------------------------------------------------------- */

struct settings {
    uint64_t mem_steps, storage_steps, from_step;
    uint64_t mem_target, storage_target;
};

/* The nodes that a term cannot do without. */
enum claim_sight { CLAIM_SEEN, CLAIM_LOOKED_FOR, CLAIM_ABSENT };

struct connectivity {
    uint64_t term;
    size_t count;
    struct node_info *nodes;
    uint64_t anew_term; /* this agent has begun anew since that term was formed, and tells its nodes; 0: none */
    uint64_t gone_term; /* the agent of node `gone` has, says its successor; 0: none */
    char gone[CONFIG_NAME];
    uint64_t claim_term, claim_since_ms; /* whose claim was looked for in save_dir, and since when */
    enum claim_sight claim;
    uint32_t looks;            /* that have not found it */
    uint64_t look_again_ms;    /* 0: not to be looked for again, or a look is under way */
    char claimer[CONFIG_NAME]; /* node whose agent has made it */
};

/* They come back by themselves, and until then they hold their job. */
struct awaited {
    uint64_t term; /* 0: none */
    uint64_t until_ms;
    uint32_t first_rank, count, world_size;
};

struct agent {
    struct config config;
    struct config given; /* as its starter said, before anybody changed it */
    bool spawned;        /* by a trainer, with the file in the runtime directory */
    struct loop *loop;
    struct pool *pool;     /* digests and page faults */
    struct pool *io;       /* what may wait for a storage that hangs: digests must go on */
    struct pool *claiming; /* claims alone, which must not wait behind drains that hang */
    struct fdstore *fdstore;
    struct hard_state *state;
    struct memory *memory;
    struct persistent *persistent;
    struct peers *peers;
    struct catalog *catalog; /* NULL if it cannot be had: it is only a hint */
    struct secret secret;
    int listen_fd;
    int spare_fd;             /* given up for a moment to refuse a connection when no other descriptor is left */
    int lock_fd;              /* says that there is an agent */
    uint64_t refused_clients; /* and those that made room */
    struct log_limit refused_hellos;
    struct loop_fd *listen_source;
    struct client *clients;
    uint64_t last_client_id;
    struct claim *claims;    /* under way */
    uint64_t world_noted;    /* term whose nodes are noted beside its claim, or are about to be */
    uint64_t world_again_ms; /* not before, after a try that failed */
    uint64_t last_asking;    /* number of the newest question about holders */
    struct awaited awaited;  /* trainers that were here before this agent was started again */
    bool reserving;          /* terms are being reserved, or given back */
    uint64_t granting;       /* term that a claim here was granted; above what is adopted: none is granted meanwhile */
    uint64_t reserve_again_ms;         /* not before, after a try */
    uint64_t reserve_failed;           /* term whose trouble with that was told */
    struct term_context *term_context; /* of the last registered term, NULL before */
    struct registration *registration; /* a registration under way */
    struct connectivity connectivity;  /* of the newest term joined */
    struct recover *recover;           /* on the coordinator */
    struct recover *dry;               /* a plan being made for the command */
    struct fetch *fetches;             /* under way */
    struct fetch *fetch_asking;        /* being answered by the machine right now */
    struct gathering *gathering;       /* manifest of the drain under way, on the coordinator */
    struct storage_op *storage;        /* under way */
    struct term_context *left;         /* whose term is over, with calls to storage that have not ended */
    struct entry *ledger;              /* waiting to be written down */
    uint32_t metadata_count;
    struct log_limit metadata_dropped;
    uint64_t commit_noted, commit_noting; /* terms whose first commit is noted on storage, and is about to be */
    uint64_t commit_again_ms;             /* not before, after a try that failed */
    bool metadata_busy;
    struct offer_answer *offer_pending;  /* filled in while an OFFER event is carried out */
    uint32_t ops;                        /* operations under way that read or write slots, but for those on storage */
    struct settings settings;            /* in force (shared, beats) */
    uint64_t mem_due_ms, storage_due_ms; /* coordinator: intervals in seconds */
    uint64_t idle_since_ms;              /* no trainer since; 0: there is one */
    uint64_t deaf_ms;                    /* others cannot connect since; 0: they can */
    bool job_done;
    bool stop_forced; /* leaves though trainers live */
    bool leaving;     /* agent_free has begun: nothing new is started */
    struct scrub *scrub;
    struct storage_scrub *storage_scrub;
    struct loop_timer *tick;
    struct loop_timer *slow_tick;
    uint64_t stale_messages;          /* of older terms, dropped */
    struct trouble trouble;           /* with storage, of this node; on the coordinator of all */
    struct trouble trouble_elsewhere; /* what the coordinator tells */
};

must_check tck_status_t agent_new(const struct config *config, struct agent **out, struct error *err);
void agent_free(struct agent *agent);
/* An operation on slots begins or ends; a registration waits until none is under way. */
void agent_op_begin(struct agent *agent);
void agent_op_end(struct agent *agent);
/* How many threads its pool has. */
uint32_t agent_pool_threads(void);
/* Adopts a newer term: the term context, if older, is closed for good. */
void agent_adopt(struct agent *agent, uint64_t term);

/* ---- claim.c ------------------------------------------------------------------------------------------------- */

void claim_handle_request(struct client *client, const uint8_t *payload, size_t len);
void claim_handle_holder(struct agent *agent, const struct peer *from, const void *data, size_t len);
void claim_handle_grant(struct agent *agent, const struct peer *from, const void *data, size_t len);
void claim_tick(struct agent *agent);
/* Those that have not ended are given up. */
void claims_free(struct agent *agent);

/* ---- holders.c ----------------------------------------------------------------------------------------------- */

/* Whether trainers of this node would lose their job to one of this run, and which term the agent `to` would be granted
 * here; asker: the trainer that asks, if it is here, else NULL. */
struct wire_holder holders_find(const struct agent *agent, const struct wire_holder_ask *ask, uint64_t to,
                                const struct client *asker);
void holders_answer(struct agent *agent, struct peer *peer, const void *data, size_t len);

/* Its process runs, at this moment. */
bool holders_alive(const struct client *c);

/* ---- membership/reservation.c ---------------------------------------------------------------------------------- */

/* Tells storage which terms are reserved here. */
void reservation_publish(struct agent *agent);
/* The same after a start; those of another directory are forgotten. */
void reservation_load(struct agent *agent);
/* Coordinator: reserves what its term's successors are missing; gives back what is left, at the end of the job. */
void reservation_tick(struct term_context *tc);
void reservation_release(struct term_context *tc);
/* Grants a term; term 0 in the answer: there is none, or not now. It is adopted here before another agent hears of it;
 * if it is for this one, the claim adopts it when it has noted it on storage, before its trainer hears. */
struct grant reservation_grant(struct agent *agent, const struct reserve_ask *ask);
void reservation_handle_ask(struct agent *agent, struct peer *peer, const void *data, size_t len);
/* What this agent knows of terms (core/reserve.h). */
struct reserve_terms reservation_terms(const struct agent *agent);
/* reserve_unused of the term that this agent coordinates. */
uint64_t reservation_unused(const struct agent *agent, uint64_t term);
/* This agent was granted a term for a trainer; the rest of the reservation is here from now on. */
void reservation_handle_grant(struct agent *agent, const struct grant *grant, uint32_t pid);

/* ---- settings.c ---------------------------------------------------------------------------------------------- */

/* What the trainer's start was given differs from what this agent has: may end this process, which its supervisor
 * starts again with the new configuration. TCK_ERR_BUSY: not while other trainers use it. */
must_check tck_status_t start_config_compare(struct client *client, const struct msg_hello *m, struct error *err);
/* The start's term has begun: what may change while a job runs is applied. */
void start_config_apply(struct client *client);

/* ---- fence.c ------------------------------------------------------------------------------------------------- */

/* Tells trainers of older terms, through their shared status pages, that this one is in force, and who has claimed it.
 */
void fence_older(struct agent *agent, uint64_t term);

/* ---- join.c -------------------------------------------------------------------------------------------------- */

void membership_handle_hello(struct client *client, const uint8_t *payload, size_t len);
void membership_handle_join(struct client *client, const uint8_t *payload, size_t len);
void membership_handle_register(struct client *client, const uint8_t *payload, size_t len);
void membership_handle_segment_get(struct client *client, const uint8_t *payload, size_t len);
/* Called when no operation is under way: a waiting registration may go on. */
void membership_ops_idle(struct agent *agent);
/* After an agent's restart: forms the kept term again. */
void membership_resume(struct agent *agent);
void membership_abandon(struct agent *agent);
/* Whether a JOIN or REGISTER of this client waits for nothing but sessions; and its answer. */
bool membership_may_reply(const struct client *client);
void membership_reply(struct client *client, const struct error *err);
/* A pool thread is changing the memory tier: nobody else may look at it. */
bool membership_is_allocating(const struct agent *agent);

/* ---- meet.c -------------------------------------------------------------------------------------------------- */

/* Wants a session with a node that this term needs; with those that its world makes needed. */
void connectivity_want_node(struct agent *agent, uint64_t term, const struct node_info *node);
void connectivity_want_world(struct agent *agent, const struct world *world);
/* True if there is no session with some of these; the text names them. */
bool connectivity_missing(const struct agent *agent, const struct node_info *nodes, size_t count, struct error *err);
/* Answers trainers whose nodes have met, or have not for too long. */
void connectivity_tick(struct agent *agent);
/* A trainer is on its way into this world, with an agent of this node that has died and its memory with it. Nobody is
 * to wait for that one. */
void connectivity_memory_lost(struct agent *agent, const struct world *world);
void connectivity_notify(struct agent *agent, struct peer *peer); /* if there is something to tell one who is up */
void connectivity_handle_gone(struct agent *agent, uint64_t term, const struct node_info *successor);
void connectivity_free(struct agent *agent);

/* ---- drive.c ------------------------------------------------------------------------------------------------- */

/* Feeds an event; its actions, and those of the events they cause, are carried out before it returns (or, called from
 * inside an action, before the outer call returns). Term and time are filled in. */
void driver_step_node(struct term_context *tc, const struct event *event);
void driver_step_coordinator(struct term_context *tc, const struct event *event);
void driver_tick(struct term_context *tc);
/* What a local rank's devices say of the slots that it is filling: of those with twins it goes on to the coordinator.
 */
void driver_handle_roots(struct term_context *tc, uint32_t rank, const struct msg_roots *m);

/* ---- exchange.c ---------------------------------------------------------------------------------------------- */

must_check tck_status_t rpc_open(struct agent *agent, struct error *err);
void rpc_send(struct term_context *tc, uint32_t node, uint16_t type, struct writer *w);
/* To the coordinator, which may be this agent itself (then it is handled at once). */
void rpc_send_coordinator(struct term_context *tc, uint16_t type, struct writer *w);
void rpc_announce(struct term_context *tc);
/* The node index of a peer in the term context, NONE32 if it is not in it. */
uint32_t rpc_node_of(const struct term_context *tc, const struct peer *peer);
void rpc_connect(struct term_context *tc);
/* Tells the coordinator that this node has its memory; again at ticks, until an answer shows that it was heard. */
void rpc_send_registered(struct term_context *tc);
void rpc_registered_tick(struct term_context *tc);
/* What a beat of this agent says now. */
void rpc_make_beat(struct agent *agent, struct wire_beat *out);
void rpc_handle_beat(struct agent *agent, const struct wire_beat *m);
/* The open term context of this term, or NULL; newer terms are adopted, senders of older ones are told. */
struct term_context *rpc_term_context(struct agent *agent, struct peer *peer, uint64_t term);
void rpc_send_stale(struct agent *agent, struct peer *peer);
void rpc_send_gone(struct peer *peer, uint64_t term);

/* ---- copies.c ------------------------------------------------------------------------------------------------ */

/* What the machine says to an offer: filled in while the OFFER event is carried out. */
struct offer_answer {
    bool answered;
    enum action_type action; /* STORE, ACK_OFFER, REJECT_OFFER */
    uint32_t slot;
    enum refusal refusal;
};
void replica_answer_offer(struct term_context *tc, const struct action *action);
/* Callbacks of the peer tier (tiers/peer.h). */
tck_status_t replica_handle_offer(void *ctx, struct peer *from, const struct peer_offer *offer,
                                  struct tier_item *item_out, struct error *err);
tck_status_t replica_handle_stored(void *ctx, struct peer *from, const struct peer_offer *offer,
                                   const struct error *outcome);
tck_status_t replica_handle_pull(void *ctx, struct peer *from, const struct peer_offer *want,
                                 struct tier_item *item_out, struct error *err);
void replica_pull_done(void *ctx, struct peer *from, const struct tier_item *item);

/* ---- metadata writer.c
 * ------------------------------------------------------------------------------------------------ */

/* Rows of the catalog and notes beside the term's claim, written in the background in this order. */
void metadata_put_version(struct term_context *tc, struct version version, enum catalog_state state);
void metadata_put_nodes(struct term_context *tc);
/* Once rank 0 has joined: notes beside the claim who is in its world, until that is written. */
void metadata_note_world(struct agent *agent, const struct world *world);
void metadata_note_restored(struct term_context *tc, struct version version);
/* The coordinator notes the first commit of its term beside the claim: what it began from did not kill the job. */
void metadata_note_commit(struct term_context *tc);
/* So does it when the job is done: what it began from did not kill it either. */
void metadata_note_end(struct term_context *tc);
/* What drains of older terms left in the stage goes; none of them can be published any more. */
void metadata_sweep_stage(struct term_context *tc);
void metadata_free(struct agent *agent);

/* ---- twins.c ------------------------------------------------------------------------------------------------- */

/* Coordinator: compares the roots that nodes report of shards they share; a difference is said aloud, never decided. */
void twins_compare(struct term_context *tc, uint32_t node, const struct wire_roots *m);
void twins_free(struct term_context *tc);

/* ---- drain.c ------------------------------------------------------------------------------------------------- */

void drain_begin(struct term_context *tc, const struct action *action);
void drain_notify(struct term_context *tc, const struct action *action);
void drain_handle_drained(struct term_context *tc, uint32_t node, const void *data, size_t len);
void drain_publish(struct term_context *tc, const struct action *action);
/* Drops what was gathered for a manifest. */
void drain_reset(struct agent *agent);

/* ---- check.c ------------------------------------------------------------------------------------------------- */

/* Compares all chunks of a slot with its digests; the slot must stay as it is until done has been called. */
typedef void check_done_fn(void *ctx, const struct error *outcome);
void check_slot(struct agent *agent, struct segment *segment, uint32_t slot, check_done_fn *done, void *ctx);

/* ---- fetch.c ------------------------------------------------------------------------------------------------- */

void fetch_handle_ask(struct term_context *tc, const struct wire_fetch *ask);
/* Of this node's own accord: scrub_repaired is told, not the coordinator. */
void fetch_repair(struct term_context *tc, const struct wire_fetch *ask);
struct fetch_tally fetch_tally(const struct term_context *tc, struct version version);
void fetch_slot_answer(struct term_context *tc, const struct action *action);
/* Queued fetches whose source came up or went down. */
void fetch_peer_changed(struct agent *agent, struct peer *peer);
void fetch_tick(struct agent *agent);
void fetch_reset(struct agent *agent);

/* ---- scrub.c ------------------------------------------------------------------------------------------------- */

must_check tck_status_t scrub_new(struct agent *agent, struct error *err);
void scrub_free(struct agent *agent);
void scrub_tick(struct agent *agent);
/* Checks every snapshot in memory now. told is called once, bad an array of texts it must free; NULL: the agent leaves.
 */
typedef void scrub_told_fn(void *ctx, uint64_t checked, json_t *bad);
must_check tck_status_t scrub_now(struct agent *agent, scrub_told_fn *told, void *ctx, struct error *err);
/* The bytes in this verified slot are not what their digests say: the copy is lost. */
void scrub_condemn(struct agent *agent, struct segment *segment, uint32_t k, const char *why);
/* A fetch_repair has ended. */
void scrub_repaired(struct term_context *tc, uint32_t local_shard, bool ok);
json_t *scrub_json(const struct agent *agent);
/* Of the committed version, on this node. */
uint64_t scrub_copies_missing(const struct agent *agent);

/* ---- scrub_storage.c ----------------------------------------------------------------------------------------- */

must_check tck_status_t storage_scrub_new(struct agent *agent, struct error *err);
void storage_scrub_free(struct agent *agent);
/* Adds its numbers. */
void storage_scrub_json(const struct agent *agent, json_t *json);

/* ---- recover.c ----------------------------------------------------------------------------------------------- */

/* Coordinator: node has its memory; when all have, recovery of the newest version begins. */
void recover_registered(struct term_context *tc, uint32_t node);
void recover_restore_ask(struct term_context *tc, uint64_t step);
void recover_inventory(struct term_context *tc, struct peer *from, const struct wire_inventory *m);
void recover_fetched(struct term_context *tc, uint32_t node, const struct wire_fetched *m);
void recover_node(struct term_context *tc, uint32_t node, bool up);
void recover_peer_up(struct agent *agent, struct peer *peer);
/* A save found no slot. If restoring failed and the trainers go on all the same, old pieces must not stand in their
 * way. */
void recover_refused(struct term_context *tc, enum refusal refusal);
void recover_tick(struct term_context *tc);
void recover_free(struct agent *agent);
/* This agent's inventory as a wire message; TCK_ERR_BUSY: not now, to be asked again. */
must_check tck_status_t recover_make_inventory(struct agent *agent, const struct wire_ask *ask, struct writer *w);
/* What recovery would do now, for the command; fn is called once with a JSON object it must free, or with an error. */
typedef void recover_plan_fn(void *ctx, json_t *plan, const struct error *err);
void recover_plan_dry(struct agent *agent, uint64_t step, recover_plan_fn *fn, void *ctx);

/* ---- restore.c ----------------------------------------------------------------------------------------------- */

/* The coordinator's answer has come: trainers that wait for it are told. */
void restore_readable(struct term_context *tc, const struct wire_readable *m);
void restore_client(struct client *client, const uint8_t *payload, size_t len);
void restore_query(struct client *client, const uint8_t *payload, size_t len);
/* Asks the coordinator again for trainers that wait. */
void restore_arrived(struct term_context *tc); /* a shard is here: somebody may wait for it */
void restore_tick(struct term_context *tc);

/* ---- writers.c ----------------------------------------------------------------------------------------------- */

/* Frees the slots in quarantine whose writers have ended, or have sealed them since. */
void writers_look(struct agent *agent);
/* What a trainer says of its copies, in whatever term they were begun: of this step; that it is back and copies nothing
 * that it was given up to its term; that it has detached. */
void writers_handle_step(struct client *client, uint64_t step);
void writers_returned(struct client *client, uint64_t term);
void writers_detached(struct client *client);
/* Whether a slot of a shard that this local rank saves is in quarantine, and who may write into it. */
bool writers_of_rank(const struct term_context *tc, uint32_t rank, struct slot_writer *writer_out,
                     struct version *version_out);
/* All slots in quarantine, for the command. */
json_t *writers_json(const struct agent *agent);

/* ---- control.c ----------------------------------------------------------------------------------------------- */

void control_request(struct client *client, const uint8_t *payload, size_t len);

/* Tells a catalog that begins anew what the headers know. */
void control_feed_catalog(struct agent *agent);

/* ---- contents.c ---------------------------------------------------------------------------------------------- */

/* Adds "blobs", the capacities of those in this segment by key, and "table", which tells one table of records from
 * another. Both are empty if it has no version yet. */
void contents_add_json(const struct segment *segment, json_t *json);

/* ---- linger.c ------------------------------------------------------------------------------------------------ */

/* Stops the loop when the job is done, or nobody has come back for the linger time. */
void idle_exit_tick(struct agent *agent);

/* ---- shared.c ---- */

/* Looks for the claim of this world's term in save_dir, once. */
void save_dir_check_begin(struct agent *agent, const struct world *world);
void save_dir_check_tick(struct agent *agent);          /* looks again if it was not found */
bool save_dir_check_is_open(const struct agent *agent); /* not answered yet, and worth waiting for */
/* True, and an error that names both nodes and the path, if this node does not see the claim of the newest term. */
bool save_dir_is_not_shared(const struct agent *agent, struct error *err);

/* ---- stop.c ---- */

/* TCK_ERR_BUSY, and why, if trainers live here or `held`, the newest that memory has, is not in storage. */
must_check tck_status_t stop_check(const struct agent *agent, struct version held, struct error *err);
/* This agent and, as far as they can be reached, the others of its term leave. With force also under their trainers;
 * without, one with trainers stays. */
void stop_request(struct agent *agent, bool force);
void stop_handle(struct term_context *tc, uint32_t from, bool force);

/* ---- storage.c ----------------------------------------------------------------------------------------------- */

/* op has what, ctx and, if they are needed, give_up and left_behind. */
void storage_begin(struct storage_op *op, struct agent *agent, struct term_context *tc);
/* Storage is done with it. op->tc may be gone when this returns. */
void storage_end(struct storage_op *op);
/* It was given up, or its term is over: what came of it must change nothing. */
bool storage_ignored(const struct storage_op *op);
/* tc is about to be replaced; tc was replaced, and is freed now or when its last call has ended. */
void storage_leaving(struct term_context *tc);
void storage_leave(struct term_context *tc);
/* Something that was given up (of this kind; NULL: anything) has not ended: what is begun now would only hang, too. */
bool storage_hangs(const struct agent *agent, const char *what, struct error *err);
void storage_tick(struct agent *agent);

/* ---- health.c ------------------------------------------------------------------------------------------------ */

/* The trouble with storage that this node knows of; code TCK_OK: none. */
const struct trouble *health_storage(const struct agent *agent);
/* step: which did not come to storage, 0 if it was something else. */
void health_storage_failed(struct agent *agent, uint64_t step, const struct error *why);
/* A version was published, so what failed before is over; or something else succeeded, which ends trouble that kept no
 * step from storage. */
void health_storage_published(struct agent *agent);
void health_storage_works(struct agent *agent);
/* A term has formed: what the coordinator of the one before said is over, and the new one says its own. */
void health_term_began(struct agent *agent);
/* What the coordinator's beats say. */
void health_handle_beat(struct agent *agent, const struct trouble *trouble);
/* Shows all of it to one trainer, to all of them. */
void health_show(const struct client *client);
void health_show_all(struct agent *agent);
json_t *health_json(const struct agent *agent);

/* ---- hearing.c ----------------------------------------------------------------------------------------------- */

/* Ends the process, to be started again, if others cannot connect to it any more. */
void listener_watchdog_tick(struct agent *agent);

/* ---- trainers.c ---------------------------------------------------------------------------------------------- */

/* A node of the world is down. If it stays so, that is told, or the trainers of this node are ended, as configured. */
void trainers_node_down(struct term_context *tc, uint32_t node, const char *why);
void trainers_node_up(struct term_context *tc, uint32_t node);
/* This agent took up its term again: a node that never answers it is as lost as one that falls silent now. */
void trainers_nodes_awaited(struct term_context *tc);
/* Acts on nodes that stay down; kills those trainers that were told to end and have not. */
void trainers_tick(struct agent *agent);
/* A trainer that comes back to a restarted agent learns on its new shared status what was decided meanwhile. */
void trainers_show_decisions(struct client *client);
/* Tells the trainers up to which step everything is decided. */
void trainers_decided(const struct term_context *tc);
/* Writes the settings in force to every trainer's shared status. */
void trainers_show_settings(struct agent *agent);
/* Coordinator: targets of intervals in seconds. */
void trainers_targets(struct term_context *tc);
/* Coordinator: changes a setting; it takes effect a few steps ahead of the fastest trainer. */
must_check tck_status_t trainers_setting(struct agent *agent, const char *key, const char *value, struct error *err);

/* ---- fd store.c ----------------------------------------------------------------------------------------------- */

must_check tck_status_t fdstore_new(struct agent *agent, struct fdstore **out, struct error *err);
void fdstore_free(struct fdstore *fdstore);
/* May wait for a busy supervisor; fdstore_put_now, for the event loop, does not. What could not be told is told later.
 */
tck_status_t fdstore_put(void *ctx, const char *name, int fd, struct error *err);
tck_status_t fdstore_put_now(void *ctx, const char *name, int fd, struct error *err);
void fdstore_remove(void *ctx, const char *name);
must_check tck_status_t fdstore_ready(struct fdstore *fdstore, struct error *err);
/* Notices a dead supervisor, starts another and stores everything with it. */
void fdstore_tick(struct fdstore *fdstore);
/* How many files are to outlive the agent, and how many of them nobody keeps. */
json_t *fdstore_json(struct fdstore *fdstore);
/* Somebody keeps all that a successor needs, and would start one. */
bool fdstore_has_all(struct fdstore *fdstore);
void fdstore_stopping(struct fdstore *fdstore);

#endif
