/* SPDX-License-Identifier: Apache-2.0
 * The state of an agent at one moment. The command's status and the metrics are made of the same
 * report, so they never contradict each other. */
#ifndef TCK_AGENT_REPORT_H
#define TCK_AGENT_REPORT_H

#include "agent/drain/archiver.h"
#include "agent/drain/drain.h"
#include "agent/lifecycle/fdstore.h"
#include "agent/pace/pacing.h"
#include "agent/pressure/pressure.h"
#include "agent/recovery/recover.h"
#include "agent/replication/fetch.h"
#include "agent/scrub/memory_scrub.h"
#include "agent/scrub/storage_scrub.h"
#include "agent/state/awaited.h"
#include "agent/tally.h"
#include "base/address_list.h"
#include "base/config.h"
#include "base/trouble.h"
#include "core/slot.h"
#include "tiers/persistent.h"

#define REPORT_LOST_MAX 16 /* lost nodes and silent addresses that are named; all are counted */

/* NODE_NO_COPIES: it is reached through another node, but copies need a direct session with it. */
enum node_state { NODE_SELF, NODE_UP, NODE_NO_COPIES, NODE_NOT_CONNECTED, NODE_LOST, NODE_STATES };
static inline const char *node_state_name(enum node_state state)
{
    static const char *const names[NODE_STATES] = {[NODE_SELF] = "self",
                                                   [NODE_UP] = "up",
                                                   [NODE_NO_COPIES] = "no copies",
                                                   [NODE_NOT_CONNECTED] = "not connected",
                                                   [NODE_LOST] = "lost"};
    return names[state];
}

/* An address of another node at which it does not answer. */
struct report_silent {
    const char *node, *address;
};

/* Of the memory tier. */
struct report_memory {
    bool changing; /* a registration is changing it: nothing below is known */
    uint64_t used_bytes, cap_bytes, segments;
    uint64_t page_bytes; /* 0: there is no segment */
    struct version held; /* newest one that was committed and of which this node has a verified copy */
    uint64_t slots[SLOT_STATES], slot_bytes[SLOT_STATES];
};

/* Of the term that this node has joined; all zeros if it has joined none. */
struct report_term {
    bool joined;
    bool closed; /* a newer term was adopted */
    bool coordinator;
    struct decision decision;
    uint64_t ranks, shards, version_bytes, shards_short, divergences;
    const char *passed_over; /* why an older version was restored; "": none was */
    uint64_t nodes[NODE_STATES];
    const char *lost[REPORT_LOST_MAX];
    uint64_t sessions[ADDRESSES_MAX]; /* by the number of the other node's address */
    uint64_t relayed;                 /* sessions that use no address */
    uint64_t silent_count;
    struct report_silent silent[REPORT_LOST_MAX];
};

struct report_trainers {
    uint64_t count, restoring;
    uint64_t step;        /* of the fastest one */
    uint64_t step_ns;     /* smoothed time of a step, of the slowest one */
    struct stalls stalls; /* also of those that have disconnected */
};

struct report_storage {
    const struct trouble *trouble;
    uint64_t calls;           /* under way */
    uint64_t oldest_since_ms; /* clock_ms; 0: none is */
};

/* Jobs that wait for a thread. */
struct report_queues {
    uint64_t digest, storage, claim;
};

/* Texts and pointers belong to the agent, and are good until its loop goes on. */
struct report {
    const struct config *config;
    uint64_t now_ms, now_wall_ms, start_wall_ms;
    uint64_t pid, term, cpu_ns;
    uint64_t reserved_first, reserved_last;      /* terms reserved for later starts; 0: none */
    uint64_t save_mem_steps, save_storage_steps; /* settings in force; 0: not by steps */
    uint64_t stale_messages;
    bool awaits_trainers;
    struct report_memory memory;
    struct report_term in_term;
    struct report_trainers trainers;
    struct parked parked;
    struct report_storage storage;
    struct report_queues queues;
    struct tally tally;
    struct scrub_counts scrub;
    struct storage_scrub_counts storage_scrub;
    struct fetch_counts fetches;
    struct drain_counts drains;
    enum clones_state clones;
    const char *clones_why; /* "": nothing is against it */
    struct archiver_figures archive;
    struct recovery_counts recoveries;
    struct pacing_figures pacing;
    struct pressure_figures pressure;
    struct awaited awaited;
};

struct agent;
struct term_context;
void report_collect(const struct agent *agent, struct report *out);
/* The state of a node of the term's world, as this one sees it. */
enum node_state report_node_state(const struct term_context *tc, uint32_t node);

#endif
