/* SPDX-License-Identifier: Apache-2.0
 * The state of a recovery, for the files that make up its machine: recovery_machine.c (the phases), pieces.c,
 * base_loss.c, outsiders.c. */
#ifndef TCK_RECOVERY_RECOVERY_STATE_H
#define TCK_RECOVERY_RECOVERY_STATE_H

#include "base/id_map.h"
#include "recovery/recovery.h"

enum piece_state { PIECE_WAITING, PIECE_ASKED, PIECE_DONE, PIECE_FAILED };

struct piece {
    uint8_t state;
    bool late;          /* an owner's that is fetched after READY, as the holders' are */
    bool from_owner;    /* requested from an owner that has it by now or receives it, not as planned */
    bool early;         /* requested from an owner that did not have it yet */
    uint8_t earlies;    /* such requests that failed */
    uint32_t inventory; /* else where it was asked from: the plan may have changed since; NONE32: storage */
    uint32_t tries;     /* that failed */
};

/* Witnesses of a shard, in this order: its owners and its holders, each of which is asked to check its own copy; then
 * every other node whose inventory lists one, and storage, each of which is asked to send it to the nodes that lack
 * theirs. */
struct base_loss {
    bool runs;
    uint32_t shard, witness;
    uint32_t node;  /* that was asked to check, or to fetch */
    uint8_t source; /* enum source_kind: LOCAL, to check its own */
    uint32_t tries; /* of this witness */
};

/* An agent that is not a member, but was one in an earlier term. */
struct outsider {
    uint64_t agent_id;
    uint64_t term;
};

struct recovery {
    struct recovery_setup setup;
    struct recovery_actions *out; /* of the step under way */
    enum recovery_phase phase;
    uint64_t deadline_ms; /* of ASKING */
    bool asked_all, listed;
    uint64_t storage_due_ms,
        storage_hang_ms;    /* from then on it is not asked again; its answer is no longer waited for */
    uint64_t list_again_ms; /* 0: not to be listed again now */
    uint32_t list_pause_ms; /* before that */
    uint32_t list_newest;   /* of how many versions on storage the content is read */
    bool *down;             /* by node */
    uint64_t lost_ms;       /* members that are down by then count as lost */
    tck_status_t failure;
    struct plan_input input;
    struct inventory *inventories; /* input.inventory_count */
    uint32_t inventory_cap;
    struct id_map inventory_of;   /* by agent_id: its first inventory */
    struct version newest_commit; /* of all inventories' watermarks */
    struct outsider *outsiders;
    uint32_t outsider_count, outsider_cap;
    struct id_map outsider_of; /* by agent_id */
    struct bad_copy *bad;      /* input.bad_count */
    bool *bad_may_return;      /* beside bad: out of reach, or damaged on its way, and so not lost */
    uint32_t bad_cap;
    uint32_t second_chances; /* how often copies out of reach were counted in again for this version */
    uint64_t older_ms;       /* an older version may be taken then */
    bool replan_due;         /* on the next tick */
    bool planned;
    struct plan plan;
    struct piece *pieces; /* as plan.actions: owners' first */
    uint32_t owner_pieces, all_pieces;
    uint32_t left; /* of this phase's pieces: not done */
    bool pressed;  /* a save found no free slot, and needs those of the base */
    uint64_t pressed_ms;
    struct base_loss base_loss;
};

/* Adds an action that is no fetch; there is always room. */
void recovery_emit(struct recovery *r, enum recovery_action_type type);
/* Adds a fetch; false if there is no room. */
must_check bool recovery_emit_fetch(struct recovery *r, const struct recovery_action *fetch);
/* A member that is down: nothing can be fetched there, so the term cannot start. NONE32 if none. */
uint32_t recovery_lost_member(const struct recovery *r);

#endif
