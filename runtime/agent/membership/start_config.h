/* SPDX-License-Identifier: Apache-2.0
 * Handles a start whose configuration differs from the one that this agent was started with. */
#ifndef TCK_AGENT_START_CONFIG_H
#define TCK_AGENT_START_CONFIG_H

#include "agent/state/context.h"

/* Compares the start's configuration with this agent's. May exit, to be restarted with the new one. TCK_ERR_BUSY: other
 * trainers use this agent. */
must_check tck_status_t start_config_compare(struct client *client, const struct msg_hello *m, struct error *err);
/* The start's term has begun: applies the keys that may change while a job runs. */
void start_config_apply(struct client *client);

#endif
