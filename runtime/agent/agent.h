/* SPDX-License-Identifier: Apache-2.0
 * The agent: one job on one node. */
#ifndef TCK_AGENT_AGENT_H
#define TCK_AGENT_AGENT_H

#include "agent/parts.h"

must_check tck_status_t agent_new(const struct config *config, struct agent **out, struct error *err);
void agent_free(struct agent *agent);

#endif
