/* SPDX-License-Identifier: Apache-2.0
 * Creates the parts of the agent in the order of their dependencies. */
#ifndef TCK_AGENT_OPEN_PARTS_H
#define TCK_AGENT_OPEN_PARTS_H

#include "agent/parts.h"

/* Parts created before an error are freed with the agent. */
must_check tck_status_t open_parts(struct agent *agent, struct error *err);
/* The term is over: operations in progress still end in it, but it no longer sends or starts anything. */
void close_term(struct agent *agent);

#endif
