/* SPDX-License-Identifier: Apache-2.0
 * What becomes of an agent that others cannot connect to any more (tiers/ucx_listeners.h). It cannot be repaired in
 * this process: it ends as if it had crashed, and the supervisor starts it again with all that it kept. */
#ifndef TCK_AGENT_LISTENER_WATCHDOG_H
#define TCK_AGENT_LISTENER_WATCHDOG_H

#include "agent/state/context.h"

/* Ends the process, to be started again, if others cannot connect to it any more. */
void listener_watchdog_tick(struct agent *agent);

#endif
