/* SPDX-License-Identifier: Apache-2.0
 * What the files of the recovery machine share. */
#ifndef TCK_RECOVERY_RECOVERY_INTERNAL_H
#define TCK_RECOVERY_RECOVERY_INTERNAL_H

#include "recovery/recovery.h"

enum piece_state { PIECE_WAITING, PIECE_ASKED, PIECE_DONE, PIECE_FAILED };

struct piece {
    uint8_t state;
    bool late;          /* an owner's that is fetched after READY, as the holders' are */
    bool from_owner;    /* asked from an owner that has it by now, not as planned */
    uint32_t inventory; /* else where it was asked from: the plan may have changed since; NONE32: storage */
    uint32_t tries;     /* that failed */
};

/* Witnesses of a shard, in this order: its owners and its holders, each asked to check its own copy; every other node
 * that had one when it was asked what it has, and storage, each asked to give it to the nodes that lack theirs. */
struct inquest {
    bool runs;
    uint32_t shard, witness;
    uint32_t node;  /* that was asked to check, or to fetch */
    uint8_t source; /* enum source_kind: LOCAL, to check its own */
    uint32_t tries; /* of this witness */
};

/* An agent that is no member, and was one in this term or before. */
struct outsider {
    uint64_t agent_id;
    uint64_t term;
};

struct recovery {
    struct recovery_setup setup;
    recovery_emit_fn *emit;
    void *ctx;
    enum recovery_phase phase;
    uint64_t deadline_ms; /* of ASKING */
    bool asked_all, listed;
    uint64_t storage_due_ms, storage_hang_ms; /* when storage is asked no more, when its answer is waited for no more */
    uint64_t list_again_ms;                   /* 0: not to be listed again now */
    uint32_t list_pause_ms;                   /* before that */
    bool *down;                               /* by node */
    uint64_t lost_ms;                         /* members that are down by then count as lost */
    tck_status_t failure;
    struct plan_input input;
    struct inventory *inventories; /* input.inventory_count */
    uint32_t inventory_cap;
    struct outsider *outsiders;
    uint32_t outsider_count, outsider_cap;
    struct bad_copy *bad; /* input.bad_count */
    bool *bad_may_return; /* beside bad: out of reach, or damaged on its way: not lost */
    uint32_t bad_cap;
    uint32_t second_chances; /* how often copies out of reach were counted in again for this version */
    uint64_t older_ms;       /* an older version may be taken then */
    bool replan_due;         /* on the next tick */
    bool planned;
    struct plan plan;
    struct piece *pieces; /* as plan.actions: owners' first */
    uint32_t owner_pieces, all_pieces;
    uint32_t left; /* of this phase's pieces: not done */
    bool pressed;  /* a save found no free slot, so what the base occupies is wanted */
    uint64_t pressed_ms;
    struct inquest inquest;
};

void recovery_emit_simple(struct recovery *r, enum recovery_action_type type);
/* A member that is down: nothing can be fetched there, so the term cannot start. NONE32 if none. */
uint32_t recovery_lost_member(const struct recovery *r);
/* Whether this inventory, of another node than the piece's, lists what the piece is of. */
bool recovery_had_it(const struct recovery *r, const struct plan_action *piece, const struct inventory *inventory);
/* Outsiders that have not answered may have what this plan lacks: a copy that makes a newer version complete, or, if
 * there is no version, anything. */
bool outsiders_may_know_better(const struct recovery *r, const struct plan *plan);
/* Whether storage has this shard of the planned version. */
bool recovery_is_stored(const struct recovery *r, uint32_t shard);
void recovery_finish_if_none_left(struct recovery *r);

/* The holders of this shard wait: all were asked in vain, and the inquest is to begin, or runs. */
bool inquest_is_due(const struct recovery *r, uint32_t shard);
/* Begins one that is due. */
void inquest_tick(struct recovery *r);
/* Without a verdict. */
void inquest_end(struct recovery *r);
/* Whether this fetch is the inquest's. */
bool inquest_asked(const struct recovery *r, uint32_t node, uint32_t shard);
void inquest_answered(struct recovery *r, tck_status_t outcome, uint64_t now_ms);

#endif
