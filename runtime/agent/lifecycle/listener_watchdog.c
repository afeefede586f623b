/* SPDX-License-Identifier: Apache-2.0
 * What becomes of an agent that others cannot connect to any more (tiers/ucx_listeners.h). It cannot be repaired in
 * this process: it ends as if it had crashed, and the supervisor starts it again with all that it kept. */
#include "agent/lifecycle/listener_watchdog.h"

#include "agent/lifecycle/fdstore.h"
#include "base/clock.h"

#include <unistd.h>

/* An agent that lives for so long does not count as one that dies at once (supervisor_child.c). */
#define DEAF_MS   15000
#define EXIT_DEAF 1

void listener_watchdog_tick(struct agent *agent)
{
    if (agent->job_done || peers_are_listening(agent->peers)) { /* one that leaves soon knows it alone */
        return;
    }
    bool kept = fdstore_has_all(agent->fdstore);
    if (agent->deaf_ms == 0) {
        agent->deaf_ms = clock_ms();
        log_error("UCX has closed a port that other agents connect to, since no descriptor was left: %s",
                  kept ? "this agent ends soon, to be started again with all that it keeps"
                       : "sessions that end now do not come back before this agent is started again");
    } else if (kept && clock_ms() - agent->deaf_ms >= DEAF_MS) {
        log_error("ends, since it is not heard by others any more");
        _exit(EXIT_DEAF);
    }
}
