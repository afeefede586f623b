/* SPDX-License-Identifier: Apache-2.0
 * The sessions that a term cannot do without: with its coordinator, and with those that copies go to and come from;
 * for the coordinator with all. */
#ifndef TCK_AGENT_CONNECTIVITY_H
#define TCK_AGENT_CONNECTIVITY_H

#include "agent/state/context.h"

/* Opens a session with a node that this term needs; with the nodes that its world requires. */
void connectivity_want_node(struct agent *agent, uint64_t term, const struct node_info *node);
void connectivity_want_world(struct agent *agent, const struct world *world);
/* True if there is no session with some of these; the text names them. */
bool connectivity_missing(const struct agent *agent, const struct node_info *nodes, size_t count, struct error *err);
/* Replies to trainers whose nodes are connected, or were not in time. */
void connectivity_tick(struct agent *agent);
/* A trainer joins a world that names a former agent of this node, which died with its memory: notifies the other nodes,
 * so that nobody waits for it. */
void connectivity_memory_lost(struct agent *agent, const struct world *world);
void connectivity_notify(struct agent *agent, struct peer *peer); /* if a node that is now up has to be notified */
void connectivity_handle_gone(struct agent *agent, uint64_t term, const struct node_info *successor);
void connectivity_free(struct agent *agent);

/* Opens the sessions that this node needs in the term, and uses existing ones. */
void connectivity_want_term(struct term_context *tc);

#endif
