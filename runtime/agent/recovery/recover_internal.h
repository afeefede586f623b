/* SPDX-License-Identifier: Apache-2.0
 * One recovery on the coordinator, shared by recover.c (the course of the recovery), recover_ask.c (contents of
 * memory), recover_storage.c (contents of storage) and recover_dry.c (a plan for the command). */
#ifndef TCK_AGENT_RECOVER_INTERNAL_H
#define TCK_AGENT_RECOVER_INTERNAL_H

#include "agent/driver/term.h"
#include "agent/recovery/asked_fetches.h"
#include "agent/recovery/recover_setup.h"
#include "base/id_map.h"
#include "base/json.h"
#include "recovery/recovery.h"
#include "tiers/persistent.h"

struct recoveries {
    struct recoveries_setup needs;
    struct recover *now;           /* on the coordinator */
    struct recover *dry;           /* a plan being made for the command */
    bool short_of_memory;          /* for the recovery that is due, as was logged */
    uint64_t number;               /* of the newest request, for a fetch or for inventories; numbers are unique */
    struct recovery_counts counts; /* without what is in progress */
};

/* The contents of storage when it was listed. Filled in by a pool thread. */
struct stored_look {
    struct storage_view view; /* of what is below */
    struct stored_version *stored;
    struct unfit_version *unfit;
    uint32_t tries; /* how often the abandoned version was restored without a commit after it */
    struct error list_err, unsure;
};

struct listing;

struct recover {
    struct recoveries *all;
    struct term_context *tc;
    struct recovery *machine; /* NULL: a dry run */
    struct recovery_clock clock;
    uint64_t asking; /* number of the request; replies to older ones are ignored */
    uint64_t step;
    bool *answered; /* by world node */
    uint32_t answered_count;
    struct id_map outsiders; /* agents outside the world that are asked, too */
    struct stored_look look;
    struct survey_range list_range; /* of look */
    uint32_t logged_newest;         /* list_range.newest of the look whose unfit versions were logged; 0: none was */
    char fetch_error[ERROR_TEXT_BYTES]; /* of the last fetch that could not read its source or had no slot; "" */
    tck_status_t fetch_outcome;         /* of the same */
    struct listing *listing;            /* under way, NULL: none */
    bool ended, running;
    /* Carries out the machine's actions after each step. r may be freed when it returns. NULL: a dry run. */
    void (*run)(struct recover *r);
    bool unsaid;                     /* all owners have the base, but trainers have not been notified yet */
    bool unbased;                    /* all holders have it, too, and the decision does not say so yet */
    struct recovery_actions actions; /* that the machine asked for, not carried out yet */
    struct asked_fetches asked;      /* without an outcome yet */
    uint64_t ask_again_ms;
    uint64_t started_ms;
    /* A dry run has no machine: it gathers inventories, plans once, and returns the plan. */
    void (*dry_fn)(void *ctx, json_t *plan, const struct error *err);
    void *dry_ctx;
    struct inventory *inventories;
    uint32_t inventory_count;
    bool listed;
};

/* recover_step.c */
/* Feeds this event to the machine, with the time added; run carries out the machine's actions. */
void recover_step(struct recover *r, struct recovery_event event);

/* recover_state.c */
void recover_forget_fetches(struct recover *r);
void recover_destroy(struct recover *r);

/* recover_dry.c */
void recover_dry_tick(struct recoveries *rs);
void recover_dry_free(struct recoveries *rs);

/* recover_ask.c */
bool recover_all_answered(const struct recover *r);
void recover_ask_all(struct recover *r);
void recover_ask_peer(struct recover *r, struct peer *peer);
/* Asks the members that have not answered. */
void recover_ask_silent(struct recover *r);
bool recover_is_outsider(const struct recover *r, const struct node_info *node);
/* Agents of earlier terms may still be running and hold copies that the world has lost. */
void recover_add_outsiders(struct recover *r, const struct known_node *known, size_t count);
void recover_take_inventory(struct recover *r, uint32_t node, struct inventory *inventory);

/* recover_storage.c */
void recover_list_storage(struct recover *r, struct survey_range range);
void recover_free_look(struct recover *r);
/* Detaches the listing in progress, whose result is then ignored. */
void recover_drop_listing(struct recover *r);

#endif
