/* SPDX-License-Identifier: Apache-2.0
 * Terms for the successors of this one (core/reserve.h): the coordinator's agent reserves them while storage answers,
 * grants them, and releases those that are left when the job is done. Reservations are kept in the hard state, so they
 * survive a restart of the agent. Called by claim.c, for messages from other agents, and on ticks. */
#ifndef TCK_AGENT_RESERVATION_H
#define TCK_AGENT_RESERVATION_H

#include "base/status.h"
#include "core/reserve.h"

#include <stddef.h>
#include <stdint.h>

struct adopt_setup;
struct config;
struct hard_state;
struct peer;
struct persistent;
struct pool;
struct reservations;
struct storage_ops;
struct term_context;

/* Dependencies. */
struct reservations_setup {
    const struct config *config;
    struct hard_state *state;
    struct persistent *persistent;
    struct pool *io;
    struct storage_ops *storage_ops;
    const struct adopt_setup *adopt;
};

must_check tck_status_t reservations_new(const struct reservations_setup *setup, struct reservations **out,
                                         struct error *err);
void reservations_free(struct reservations *rs);
/* Informs the storage tier which terms are reserved here. */
void reservation_publish(struct reservations *rs);
/* The same at start; terms of another save_dir are discarded. */
void reservation_load(struct reservations *rs);
/* Coordinator: reserves terms for the successors of its term; releases what is left at the end of the job. */
void reservation_tick(struct reservations *rs, const struct term_context *tc);
void reservation_release(struct reservations *rs, const struct term_context *tc);
/* Grants a term; term 0 in the reply: there is none, or not now. It is adopted here before the reply to another agent;
 * a claim of this agent adopts it after it was written to storage and before its trainer gets the reply. */
struct grant reservation_grant(struct reservations *rs, const struct reserve_ask *ask);
void reservation_handle_ask(struct reservations *rs, struct peer *peer, const void *data, size_t len);
/* What this agent knows about terms (core/reserve.h). */
struct reserve_terms reservation_terms(const struct reservations *rs);
/* reserve_unused of the term that this agent coordinates. */
uint64_t reservation_unused(const struct reservations *rs, uint64_t term);
/* This agent was granted a term for a trainer; from now on, the rest of the reservation belongs to this agent. */
void reservation_handle_grant(struct reservations *rs, const struct grant *grant, uint32_t pid);
/* The claim that was granted this term has ended, or has lost it to another start. */
void reservation_end_grant(struct reservations *rs, uint64_t term);

#endif
