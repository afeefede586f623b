/* SPDX-License-Identifier: Apache-2.0
 * The agent: all its parts, and what they share. Only the composition and the command, which reports on all parts, see
 * it; a part receives its dependencies when it is created. */
#ifndef TCK_AGENT_PARTS_H
#define TCK_AGENT_PARTS_H

#include "agent/driver/term.h"
#include "agent/lifecycle/listener_watchdog.h"
#include "agent/lifecycle/stop.h"
#include "agent/membership/fence.h"
#include "agent/membership/join_reply.h"
#include "agent/recovery/restore.h"
#include "agent/replication/replica_service.h"
#include "agent/state/adopt.h"
#include "agent/state/awaited.h"
#include "agent/tally.h"
#include "agent/trainers/slot_writers.h"
#include "base/config.h"
#include "base/progress.h"
#include "base/secret.h"

struct archiver;
struct catalog;
struct claims;
struct connectivity;
struct drain;
struct fdstore;
struct fetches;
struct health;
struct holders;
struct idle_exit;
struct ipc_server;
struct loop;
struct loop_timer;
struct membership;
struct memory;
struct metadata;
struct metrics;
struct pacing;
struct peers;
struct persistent;
struct pool;
struct presence;
struct pressure;
struct recoveries;
struct reservations;
struct rpc;
struct save_dir_check;
struct scrub;
struct slot_ops;
struct start_config;
struct storage_ops;
struct storage_scrub;
struct trace;
struct trainers;

/* There is one per process. Its members are grouped by their meaning. */
struct agent { /* NOLINT(clang-analyzer-optin.performance.Padding) */
    struct config config;
    struct secret secret;
    struct presence *presence; /* lets starts find the agent */
    struct loop *loop;
    struct loop_timer *tick;
    struct loop_timer *slow_tick;
    uint32_t pool_threads; /* of pool */
    struct pool *pool;     /* digests and page faults */
    struct pool *io;       /* calls that may hang in storage, kept apart from digests */
    struct pool *claiming; /* claims only, which must not wait behind hanging drains */
    bool leaving;          /* agent_free has begun: nothing new is started */

    struct tally tally;
    struct awaited awaited;    /* what trainers of this node wait for */
    uint64_t auto_interval_ms; /* clock_ms of the next look at intervals that are "auto" */
    uint64_t start_wall_ms;

    struct client *clients;            /* of ipc_server */
    struct term_context *term_context; /* of the last registered term, NULL before; membership sets it */
    struct term_setup term_setup;      /* for each new term context */

    struct fdstore *fdstore;
    struct hard_state *state;
    struct memory *memory;
    struct progress touched; /* pages of it */
    struct persistent *persistent;
    struct catalog *catalog; /* NULL if it cannot be opened: it is only a hint */
    struct peers *peers;
    struct adopt_setup adopt;
    struct pacing *pacing; /* of copies and drains */
    struct slot_ops *slot_ops;
    struct rpc *rpc;
    struct replica_setup replicas;
    struct health *health; /* of storage */
    struct storage_ops *storage_ops;
    struct metadata *metadata;
    struct trainers *trainers;
    struct writers_setup writers;
    struct fetches *fetches;
    struct idle_exit *idle_exit;
    struct listener_watchdog listener_watchdog;
    struct stop_setup stop;
    struct reservations *reservations;
    struct save_dir_check *save_dir_check;
    struct join_setup join;
    struct connectivity *connectivity;
    struct holders *holders;
    struct fence_setup fence;
    struct claims *claims;
    struct start_config *start_config;
    struct membership *membership;
    struct restore_setup restore;
    struct recoveries *recoveries;
    struct scrub *scrub;
    struct storage_scrub *storage_scrub;
    struct pressure *pressure; /* of memory */
    struct drain *drain;
    struct archiver *archiver; /* NULL: there is no archive_dir */
    struct metrics *metrics;
    struct trace *trace; /* NULL: none is written */
    struct ipc_server *ipc_server;
};

#endif
