/* SPDX-License-Identifier: Apache-2.0
 * Puts the agent together, in the order in which its parts need each other, and takes it apart. */
#ifndef TCK_AGENT_AGENT_H
#define TCK_AGENT_AGENT_H

#include "agent/state/context.h"

must_check tck_status_t agent_new(const struct config *config, struct agent **out, struct error *err);
void agent_free(struct agent *agent);

#endif
