/* SPDX-License-Identifier: Apache-2.0
 * tierckpt stop: the agents of a job leave before their linger time is over, and their memory goes with them. */
#ifndef TCK_AGENT_STOP_H
#define TCK_AGENT_STOP_H

#include "agent/state/context.h"

/* TCK_ERR_BUSY, and why, if trainers live here or `held`, the newest that memory has, is not in storage. */
must_check tck_status_t stop_check(const struct agent *agent, struct version held, struct error *err);
/* This agent and, as far as they can be reached, the others of its term leave. With force also under their trainers;
 * without, one with trainers stays. */
void stop_request(struct agent *agent, bool force);
void stop_handle(struct term_context *tc, uint32_t from, bool force);

#endif
