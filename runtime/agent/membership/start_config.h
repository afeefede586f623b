/* SPDX-License-Identifier: Apache-2.0
 * A start whose configuration differs from the one that this agent was started with. What may change while a job runs
 * is applied when the start has joined its term; for the rest the agent is started again with the new configuration,
 * and keeps its memory. If it cannot be, the start is refused: nothing is passed over. */
#ifndef TCK_AGENT_START_CONFIG_H
#define TCK_AGENT_START_CONFIG_H

#include "agent/state/context.h"

/* What the trainer's start was given differs from what this agent has: may end this process, which its supervisor
 * starts again with the new configuration. TCK_ERR_BUSY: not while other trainers use it. */
must_check tck_status_t start_config_compare(struct client *client, const struct msg_hello *m, struct error *err);
/* The start's term has begun: what may change while a job runs is applied. */
void start_config_apply(struct client *client);

#endif
