/* SPDX-License-Identifier: Apache-2.0
 * Publishes settings, decisions and health on the trainers' shared status pages and, if so configured, ends trainers
 * after the loss of a node, because the launcher would otherwise wait for a collective's time-out. */
#ifndef TCK_AGENT_TRAINER_CONTROL_H
#define TCK_AGENT_TRAINER_CONTROL_H

#include "agent/state/context.h"

/* A node of the world is down. If it stays down, that is reported, or the trainers of this node are ended, as
 * configured. */
void trainers_node_down(struct term_context *tc, uint32_t node, const char *why);
void trainers_node_up(struct term_context *tc, uint32_t node);
/* This agent has resumed its term: a node that never connects counts as lost, like one that goes down. */
void trainers_nodes_awaited(struct term_context *tc);
/* Acts on nodes that stay down; kills trainers that did not end after SIGTERM. */
void trainers_tick(struct agent *agent);
/* Writes what was decided meanwhile to the new shared status page of a trainer that reconnects to a restarted agent. */
void trainers_show_decisions(struct client *client);
/* Publishes up to which step everything is decided. */
void trainers_decided(const struct term_context *tc);
/* Writes the state of the job that users have to know, trouble with storage and missing copies, to the status page of
 * one trainer, or of all of them. */
void trainers_show_health(const struct client *client);
void trainers_show_health_to_all(const struct agent *agent);
/* Writes the settings in force to every trainer's shared status. */
void trainers_show_settings(struct agent *agent);
/* Coordinator: targets of intervals in seconds. */
void trainers_targets(struct term_context *tc);
/* Coordinator: changes a setting; it takes effect a few steps ahead of the fastest trainer. */
must_check tck_status_t trainers_setting(struct agent *agent, const char *key, const char *value, struct error *err);

#endif
