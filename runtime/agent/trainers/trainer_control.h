/* SPDX-License-Identifier: Apache-2.0
 * What this agent tells trainers without being asked: settings through their shared status pages, and, if so
 * configured, that they must end because a node is lost and the launcher would otherwise wait for a collective's
 * time-out. */
#ifndef TCK_AGENT_TRAINER_CONTROL_H
#define TCK_AGENT_TRAINER_CONTROL_H

#include "agent/state/context.h"

/* A node of the world is down. If it stays so, that is told, or the trainers of this node are ended, as configured. */
void trainers_node_down(struct term_context *tc, uint32_t node, const char *why);
void trainers_node_up(struct term_context *tc, uint32_t node);
/* This agent took up its term again: a node that never answers it is as lost as one that falls silent now. */
void trainers_nodes_awaited(struct term_context *tc);
/* Acts on nodes that stay down; kills those trainers that were told to end and have not. */
void trainers_tick(struct agent *agent);
/* A trainer that comes back to a restarted agent learns on its new shared status what was decided meanwhile. */
void trainers_show_decisions(struct client *client);
/* Tells the trainers up to which step everything is decided. */
void trainers_decided(const struct term_context *tc);
/* Writes the settings in force to every trainer's shared status. */
void trainers_show_settings(struct agent *agent);
/* Coordinator: targets of intervals in seconds. */
void trainers_targets(struct term_context *tc);
/* Coordinator: changes a setting; it takes effect a few steps ahead of the fastest trainer. */
must_check tck_status_t trainers_setting(struct agent *agent, const char *key, const char *value, struct error *err);

#endif
