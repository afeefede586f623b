/* SPDX-License-Identifier: Apache-2.0
 * When an agent leaves: soon after its job ended cleanly, else when no trainer has come back for the linger time. */
#ifndef TCK_AGENT_IDLE_EXIT_H
#define TCK_AGENT_IDLE_EXIT_H

#include "agent/state/context.h"

/* Stops the loop when the job is done, or nobody has come back for the linger time. */
void idle_exit_tick(struct agent *agent);

#endif
