/* SPDX-License-Identifier: Apache-2.0
 * One joined term on this node: creates the node machine's shards from the world and the placement, and restores the
 * states of slots from their headers. */
#ifndef TCK_AGENT_TERM_CONTEXT_H
#define TCK_AGENT_TERM_CONTEXT_H

#include "agent/driver/term.h"

/* Takes ownership of world and placement on success. The segments of all local shards must exist. decision: the kept
 * one, or NULL. */
must_check tck_status_t term_context_new(const struct term_setup *setup, struct world *world,
                                         struct placement *placement, const struct decision *decision,
                                         struct term_context **out, struct error *err);
void term_context_free(struct term_context *tc);
/* The local index of a shard; NONE32 if this node has no slots for it. */
uint32_t term_context_shard(const struct term_context *tc, struct hash128 shard);
/* The local shards that this rank has, one after the other, in the order of the world; *at is 0 before the first call.
 * NONE32: there are no more. */
uint32_t term_context_next_of(const struct term_context *tc, uint32_t rank, uint32_t *at);
/* The local shard of a slot of the node machine, and the slot's number within its segment. */
struct local_shard *term_context_slot(const struct term_context *tc, uint32_t slot, uint32_t *slot_in_segment);
int64_t term_context_local_rank(const struct term_context *tc, uint32_t rank);
bool term_context_is_coordinator(const struct term_context *tc);
/* Reports the seal of a local rank whose trainer sealed its slots but disconnected before reporting it. */
void term_context_report_seal(struct term_context *tc, uint32_t rank);
/* The same for all local ranks without a connected trainer. */
void term_context_report_seals(struct term_context *tc);
/* True while digests of versions of older terms are still being computed. Until they are, inventories omit those
 * versions. */
bool term_context_digests_due(const struct term_context *tc);
bool world_rank_has(const struct world *world, uint32_t shard, uint32_t rank);

#endif
