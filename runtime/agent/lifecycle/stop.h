/* SPDX-License-Identifier: Apache-2.0
 * tierckpt stop: ends the agents of a job before their linger time is over, and frees their memory. */
#ifndef TCK_AGENT_STOP_H
#define TCK_AGENT_STOP_H

#include "agent/state/context.h"

/* TCK_ERR_BUSY if trainers run here, or if `held`, the newest version in memory, is not published. */
must_check tck_status_t stop_check(const struct agent *agent, struct version held, struct error *err);
/* Ends this agent and those of its term that can be reached. Without force, agents with trainers keep running. */
void stop_request(struct agent *agent, bool force);
void stop_handle(struct term_context *tc, uint32_t from, bool force);

#endif
