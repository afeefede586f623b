/* SPDX-License-Identifier: Apache-2.0
 * The sessions that a term cannot do without: with its coordinator, and with those that copies go to and come from; for
 * the coordinator with all. JOIN and REGISTER of a trainer are answered when they stand, or with the names and
 * addresses of who could not be reached: at the start of a job, where somebody looks, and not when its state is needed.
 */
#ifndef TCK_AGENT_CONNECTIVITY_H
#define TCK_AGENT_CONNECTIVITY_H

#include "agent/state/context.h"

/* Wants a session with a node that this term needs; with those that its world makes needed. */
void connectivity_want_node(struct agent *agent, uint64_t term, const struct node_info *node);
void connectivity_want_world(struct agent *agent, const struct world *world);
/* True if there is no session with some of these; the text names them. */
bool connectivity_missing(const struct agent *agent, const struct node_info *nodes, size_t count, struct error *err);
/* Answers trainers whose nodes have met, or have not for too long. */
void connectivity_tick(struct agent *agent);
/* A trainer is on its way into this world, with an agent of this node that has died and its memory with it. Nobody is
 * to wait for that one. */
void connectivity_memory_lost(struct agent *agent, const struct world *world);
void connectivity_notify(struct agent *agent, struct peer *peer); /* if there is something to tell one who is up */
void connectivity_handle_gone(struct agent *agent, uint64_t term, const struct node_info *successor);
void connectivity_free(struct agent *agent);

/* Wants sessions with all that this term needs here, and takes up those that there are. */
void connectivity_want_term(struct term_context *tc);

#endif
