/* SPDX-License-Identifier: Apache-2.0
 * The course of one recovery, on the coordinator: it asks for inventories, plans, makes each node fetch what it lacks,
 * plans again without a copy that failed, and reports when all owners have their shards (trainers may read) and when
 * all holders have (the base is protected, older versions may go). Pure: it takes events and returns actions, which the
 * agent and the simulator carry out. */
#ifndef TCK_RECOVERY_RECOVERY_H
#define TCK_RECOVERY_RECOVERY_H

#include "core/protocol.h"
#include "recovery/plan.h"

enum recovery_phase {
    RECOVERY_IDLE,
    RECOVERY_ASKING,
    RECOVERY_FETCHING,
    RECOVERY_PROTECTING,
    RECOVERY_DONE,
    RECOVERY_LOST, /* the base, after RECOVERY_READY */
    RECOVERY_FAILED
};

struct recovery_setup {
    const struct world *world;
    const struct placement *placement;
    uint32_t wait_ms;      /* for inventories of known nodes outside the world, for members that are down to return,
                              and, before an older version is taken, for copies that are out of reach or were damaged in
                              transit */
    uint32_t max_tries;    /* for problems that may pass: fetches of a shard that the node itself cannot take, and the
                              least number of rounds in which such copies are tried again */
    uint64_t unused_terms; /* terms right before the world's own in which nothing was saved */
    bool first_owner_suffices; /* READY comes as soon as one owner of each shard has it, along with all nodes that
                                  had it themselves: the trainers pass it on, and the nodes of the other owners fetch
                                  it meanwhile */
    uint32_t storage_wait_ms;  /* how long storage is asked again for something needed that it could not read */
    uint32_t storage_hang_ms;  /* how long to wait for its answer if memory does not suffice; 0: without a limit. If
                                  memory suffices, the wait is storage_wait_ms */
};

enum recovery_action_type {
    RECOVERY_ASK,       /* every reachable agent for its inventory: RECOVERY_EVENT_INVENTORY */
    RECOVERY_LIST,      /* storage for its versions: RECOVERY_EVENT_STORED. The content of the newest `newest` of each
                           place is read, and of all with the step `step`. Again if something could not be read, also
                           after fetches have failed, if the next version may be there; and with more of them, if none
                           of these can be taken */
    RECOVERY_FETCH,     /* node `node` shall fetch `shard` from `source` / `from`: RECOVERY_EVENT_FETCHED. What only
                           storage has is read there once: other nodes get it as from a twin, which may still be
                           fetching it itself and passes on what has arrived */
    RECOVERY_READY,     /* owners have everything, or one of each shard has: trainers may read `version` */
    RECOVERY_PROTECTED, /* all owners, and holders too: EVENT_BASED */
    RECOVERY_BASE_LOST, /* a shard has no good copy left to protect it with: EVENT_BASE_LOST */
    RECOVERY_NOTHING,   /* nothing restorable: plan.reason; EVENT_BASED with VERSION_NONE if nothing was ever saved */
};

struct recovery_action {
    enum recovery_action_type type;
    uint32_t node, shard;
    uint32_t newest;
    uint64_t step;         /* TCK_NEWEST: none in particular */
    uint8_t source;        /* enum source_kind */
    struct node_info from; /* twin, peer: whose memory */
    struct version version;
};

/* How a save that found no free slot gets one while the versions of older terms occupy all slots. */
enum recovery_free_slots {
    RELIEF_NONE,        /* nothing: a slot is free, or will be as soon as the last decision is kept */
    RELIEF_PRESS,       /* RECOVERY_EVENT_SLOTS_NEEDED */
    RELIEF_BASE_LOST,   /* EVENT_BASE_LOST: the base, chosen before this coordinator began, is no longer complete */
    RELIEF_BEGIN_AGAIN, /* the recovery, with that base if one was chosen: the cause of its failure may be over */
    RELIEF_NO_BASE      /* EVENT_BASED with VERSION_NONE: nothing could be restored, and the trainers continue */
};

/* The clock of a recovery, zeroed at first. A process or machine that was stopped has not waited: answers that have
 * arrived meanwhile are still unread when it continues. So the clock advances by at most RECOVERY_STEP_MS between two
 * calls. */
#define RECOVERY_STEP_MS 100

struct recovery_clock {
    uint64_t seen_ms;    /* by the machine's clock, at the last call */
    uint64_t counted_ms; /* the answer then */
};

/* The now_ms of every event. Call it at least every RECOVERY_STEP_MS, for example in each tick. */
uint64_t recovery_clock_at(struct recovery_clock *clock, uint64_t now_ms);

/* ---- events ---------------------------------------------------------------------------------------------------- */

enum recovery_event_type {
    /* step: starts, or starts again, for the newest version (TCK_NEWEST) or a given step */
    RECOVERY_EVENT_START,
    /* version: starts with a base that was chosen before, by a coordinator whose choice trainers may know; it may be
       none */
    RECOVERY_EVENT_RESUME,
    /* inventory: its holdings are taken over; a later one of the same agent replaces the former */
    RECOVERY_EVENT_INVENTORY,
    /* known: an agent that a catalog remembers from an earlier term. If it is not a member it may hold what no member
       has: its inventory is waited for, for at most wait_ms, before an older version or none is taken. If it is
       reported again, the later term counts. Comes before the inventory of the agent that remembers it */
    RECOVERY_EVENT_KNOWN,
    /* Every agent that was asked has answered or is known to be down: the caller decides which agents those are.
       Planning begins now or when wait_ms is over; it waits longer if some agent knows of a newer commit than what can
       be put together */
    RECOVERY_EVENT_ASKED_ALL,
    /* storage: must come, also if storage cannot be listed. What the view points to stays valid until the recovery ends
       or lists storage again */
    RECOVERY_EVENT_STORED,
    /* node, shard, version, outcome: the end of a RECOVERY_FETCH, TIMEDOUT without an answer. CORRUPT and NOENT: that
       copy is lost. UNREACHABLE, TIMEDOUT, IO: another copy is tried at once, this one again before an older version is
       taken; if it is the one on storage, no older version is taken. Everything else is the node's own problem (no
       room): retried on ticks, then the recovery fails. A holder is retried without limit */
    RECOVERY_EVENT_FETCHED,
    /* node: a member that goes down before RECOVERY_READY, and is not back within wait_ms, breaks the term:
       RECOVERY_NOTHING, and the reason names it. The caller requests its fetches again when it is back */
    RECOVERY_EVENT_NODE_DOWN,
    /* node: asked again if it came back before there was a plan */
    RECOVERY_EVENT_NODE_UP,
    RECOVERY_EVENT_TICK,
    /* A save found no free slot, and needs those of the base: checks whether the base can still be protected */
    RECOVERY_EVENT_SLOTS_NEEDED,
};

struct recovery_event {
    enum recovery_event_type type;
    uint64_t now_ms; /* every event carries the time */
    uint64_t step;
    struct version version;
    uint32_t node, shard;
    tck_status_t outcome;
    struct inventory *inventory; /* moved: it is empty afterwards */
    const struct known_node *known;
    const struct storage_view *storage;
};

/* ---- the machine ----------------------------------------------------------------------------------------------- */

/* What the machine asks for, in order. The caller carries it out after the step, removes it, and may step meanwhile. */
struct recovery_actions {
    struct recovery_action *items;
    uint32_t count, cap;
};

must_check tck_status_t recovery_actions_init(struct recovery_actions *actions);
void recovery_actions_free(struct recovery_actions *actions);

struct recovery;

must_check tck_status_t recovery_new(const struct recovery_setup *setup, struct recovery **out);
void recovery_free(struct recovery *r);
/* Adds to out. Out of memory is no error: fetches that find no room are asked for on a later tick, and room for all
 * other actions is reserved. */
void recovery_step(struct recovery *r, const struct recovery_event *event, struct recovery_actions *out);
/* What the coordinator does about it, by how far the recovery came: enum recovery_free_slots. r may be NULL. */
enum recovery_free_slots recovery_free_slots(const struct recovery *r, const struct decision *d);
enum recovery_phase recovery_phase(const struct recovery *r);
/* After RECOVERY_NOTHING: TCK_ERR_NOENT nothing was ever committed, TCK_ERR_UNRECOVERABLE no version is complete,
 * TCK_ERR_LAYOUT the plan's version to reshard is to be read by each rank, or there is none because only memory has it,
 * TCK_ERR_UNREACHABLE a member was lost, TCK_ERR_IO something that may be there cannot be read now, TCK_ERR_PROTO it is
 * of a format that this build does not read; or why a node could not take its shards. */
tck_status_t recovery_failure(const struct recovery *r);
const struct plan *recovery_plan(const struct recovery *r); /* NULL while ASKING */
const struct plan_input *recovery_input(const struct recovery *r);
/* The newest commit that any inventory of this recovery knows of. */
struct version recovery_newest_commit(const struct recovery *r);

/* What nodes spare when they give up slots for the fetches of this recovery. */
struct recovery_spared {
    struct version floor;    /* never given up: the newest known commit, or the plan's newer version in its place */
    struct version fallback; /* given up last: the newest known commit if it is not the floor, otherwise the newest
                                complete version before the one that is restored */
};
struct recovery_spared recovery_spared(const struct recovery *r);

#endif
