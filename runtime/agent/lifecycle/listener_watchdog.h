/* SPDX-License-Identifier: Apache-2.0
 * Restarts an agent that others can no longer connect to (tiers/ucx_listeners.h). The process cannot repair that: it
 * exits as if it had crashed, and the supervisor starts it again with its memory. */
#ifndef TCK_AGENT_LISTENER_WATCHDOG_H
#define TCK_AGENT_LISTENER_WATCHDOG_H

#include "agent/state/context.h"

void listener_watchdog_tick(struct agent *agent);

#endif
