/* SPDX-License-Identifier: Apache-2.0
 * Shared by the files that claim a term: claim.c (the decision and the end), claim_agents.c (questions to agents and
 * their answers), claim_storage.c (reads and writes on storage). */
#ifndef TCK_AGENT_CLAIM_INTERNAL_H
#define TCK_AGENT_CLAIM_INTERNAL_H

#include "agent/membership/claim_setup.h"
#include "agent/state/wire.h"
#include "base/message.h"
#include "core/holder.h"
#include "tiers/persistent.h"

enum claim_phase {
    CLAIM_READING,
    CLAIM_READ_AGAIN,
    CLAIM_ASKING,
    CLAIM_GRANTING, /* waits for a term from the agent that has reserved it */
    CLAIM_WRITING,
};

/* An agent of an earlier term. */
struct asked_agent {
    struct node_info node;
    bool self;
    bool for_term;     /* only asked for a term: its trainers belong to this run, and do not hold the job against it */
    bool replaced;     /* another agent runs on its node now: it is dead, or uses another runtime directory */
    uint64_t asked_ms; /* 0: not yet */
    bool answered;
    struct wire_holder answer; /* newest */
};

struct claim;
struct claim_call;
struct claims;

/* Called when a call to storage has ended. Each may end and free the claim. */
struct claim_steps {
    /* Storage was read; it could not be read (c->err); the claim was written, or could not be (c->status). */
    void (*was_read)(struct claim *c);
    void (*storage_unreadable)(struct claim *c);
    void (*was_written)(struct claim *c);
    void (*fail)(struct claim *c, tck_status_t status);
};

struct claim {
    const struct claim_steps *steps;
    struct claim *next;
    struct claims *all;
    const struct claims_setup *needs;
    struct claim_call *call; /* to storage, under way; NULL: none */
    uint64_t client;         /* id */
    struct msg_claim wanted;
    struct holder_claim facts;
    struct wire_holder_ask ask;
    enum claim_phase phase;
    uint64_t asking_ms;
    uint64_t again_ms; /* earliest time of the next read from storage */
    struct holder_unnamed unnamed;
    struct term_holder own; /* what is written beside the claim */
    bool without_storage;   /* storage does not answer: only what agents keep in memory is used */
    struct error storage_err;
    struct term_holders holders;
    uint32_t asked_count;
    struct asked_agent *asked;
    uint32_t granter; /* index in asked */
    uint64_t granting_ms, grant_asked_ms;
    bool others_offer; /* some agents are only asked for a term */
    bool same_run;     /* the term in use is of the run that asks: trainers that may reconnect (pid 0) do not count */
    bool granted;
    uint64_t term; /* granted, or claimed on storage; 0: neither yet */
    tck_status_t status;
    struct error err;
};

/* ---- claim_agents.c ------------------------------------------------------------------------------------------ */

/* The term in use is the oldest of those that were read; NULL: none is known. */
const struct held_term *claim_in_use(const struct claim *c);
/* Lists the agents to be asked, from the holders. */
must_check tck_status_t claim_list_agents(struct claim *c);
/* Asks the agents that have not answered, and asks those with live trainers again. */
void claim_ask_agents(struct claim *c, const struct client *asker);
void claim_count_answers(struct claim *c);
/* True if trainers of that agent hold the job. */
bool claim_is_held_by(const struct claim *c, const struct asked_agent *a);
bool claim_all_answered(const struct claim *c);
/* An agent of a node on which another one runs now, and that is alive all the same; NULL: none. */
const struct asked_agent *claim_second_agent(const struct claim *c);
/* The index of the agent that can grant a term; UINT32_MAX: none. */
uint32_t claim_granter(const struct claim *c);
/* Sends a message. False: the agent cannot be reached yet. */
bool claim_send(const struct claim *c, const struct asked_agent *to, uint16_t type, const struct writer *w);

/* ---- claim_storage.c ----------------------------------------------------------------------------------------- */

void claim_read(struct claim *c);
/* Claims a term on storage or, if one was granted, writes its owner there. */
void claim_write(struct claim *c);
/* Detaches the call from a claim that ends before it. */
void claim_leave_call(struct claim *c);

#endif
