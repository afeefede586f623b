/* SPDX-License-Identifier: Apache-2.0
 * Terms for the successors of this one (core/reserve.h): the coordinator's agent reserves them while storage answers,
 * grants them, and gives back what is left when the job is done. */
#ifndef TCK_AGENT_RESERVATION_H
#define TCK_AGENT_RESERVATION_H

#include "agent/state/context.h"

/* Informs the storage tier which terms are reserved here. */
void reservation_publish(struct agent *agent);
/* The same after a start; terms of another save_dir are forgotten. */
void reservation_load(struct agent *agent);
/* Coordinator: reserves terms for the successors of its term; releases what is left at the end of the job. */
void reservation_tick(struct term_context *tc);
void reservation_release(struct term_context *tc);
/* Grants a term; term 0 in the reply: there is none, or not now. It is adopted here before the reply to another agent;
 * a claim of this agent adopts it after it was written to storage and before its trainer gets the reply. */
struct grant reservation_grant(struct agent *agent, const struct reserve_ask *ask);
void reservation_handle_ask(struct agent *agent, struct peer *peer, const void *data, size_t len);
/* What this agent knows of terms (core/reserve.h). */
struct reserve_terms reservation_terms(const struct agent *agent);
/* reserve_unused of the term that this agent coordinates. */
uint64_t reservation_unused(const struct agent *agent, uint64_t term);
/* This agent was granted a term for a trainer; the rest of the reservation is here from now on. */
void reservation_handle_grant(struct agent *agent, const struct grant *grant, uint32_t pid);

#endif
