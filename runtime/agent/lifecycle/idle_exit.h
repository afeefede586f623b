/* SPDX-License-Identifier: Apache-2.0
 * Ends an idle agent: soon after its job has ended cleanly, otherwise when no trainer has connected for linger_s. */
#ifndef TCK_AGENT_IDLE_EXIT_H
#define TCK_AGENT_IDLE_EXIT_H

#include "agent/state/context.h"

void idle_exit_tick(struct agent *agent);

#endif
