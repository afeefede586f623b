/* SPDX-License-Identifier: Apache-2.0
 * One joined term on this node: from the world and the placement to the node machine's duties, and slots back from
 * their headers. */
#ifndef TCK_AGENT_TERM_CONTEXT_H
#define TCK_AGENT_TERM_CONTEXT_H

#include "agent/state/context.h"

/* Takes over world and placement on success. Segments of all duties must exist. decision: kept one or NULL. */
must_check tck_status_t term_context_new(struct agent *agent, struct world *world, struct placement *placement,
                                         const struct decision *decision, struct term_context **out, struct error *err);
void term_context_free(struct term_context *tc);
/* Index into duties of a shard; NONE32 if this node has no slots for it. */
uint32_t term_context_shard(const struct term_context *tc, struct hash128 shard);
/* The duty and slot within its segment of a machine slot number. */
struct local_shard *term_context_slot(const struct term_context *tc, uint32_t slot, uint32_t *slot_in_segment);
int64_t term_context_local_rank(const struct term_context *tc, uint32_t rank);
bool term_context_is_coordinator(const struct term_context *tc);
/* Local rank: has its trainer, which cannot say so any more, sealed what it was filling? */
void term_context_take_seal(struct term_context *tc, uint32_t rank);
/* The same for all whose trainers are not connected. */
void term_context_take_seals(struct term_context *tc);
/* Digests of versions of older terms are still to be made: until then they are in no inventory. */
bool term_context_digests_due(const struct term_context *tc);
/* Does this world rank hold this world shard? */
bool world_rank_has(const struct world *world, uint32_t shard, uint32_t rank);

#endif
