/* SPDX-License-Identifier: Apache-2.0
 * Restarts an agent that others can no longer connect to (tiers/ucx_listeners.h). */
#ifndef TCK_AGENT_LISTENER_WATCHDOG_H
#define TCK_AGENT_LISTENER_WATCHDOG_H

#include "agent/state/context.h"

void listener_watchdog_tick(struct agent *agent);

#endif
