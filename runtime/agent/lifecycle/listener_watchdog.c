/* SPDX-License-Identifier: Apache-2.0
 * What becomes of an agent that others cannot connect to any more (tiers/ucx_listeners.h). It cannot be repaired in
 * this process: it ends as if it had crashed, and the supervisor starts it again with all that it kept. */
#include "agent/lifecycle/listener_watchdog.h"

#include "agent/lifecycle/fdstore.h"
#include "base/clock.h"
#include "core/agent_end.h"

#include <unistd.h>

#define EXIT_DEAF 1

void listener_watchdog_tick(struct agent *agent)
{
    bool listening = peers_are_listening(agent->peers);
    struct agent_hearing hearing = {.listening = listening,
                                    .job_done = agent->job_done,
                                    .kept = !listening && fdstore_has_all(agent->fdstore),
                                    .since_ms = agent->deaf_ms};
    switch (agent_deaf_judge(&hearing, clock_ms())) {
    case AGENT_HEARS:
    case AGENT_STAYS_DEAF:
        break;
    case AGENT_TURNS_DEAF:
        agent->deaf_ms = clock_ms();
        log_error("UCX has closed a port that other agents connect to, since no descriptor was left: %s",
                  hearing.kept ? "this agent ends soon, to be started again with all that it keeps"
                               : "sessions that end now do not come back before this agent is started again");
        break;
    case AGENT_ENDS_DEAF:
        log_error("ends, since it is not heard by others any more");
        _exit(EXIT_DEAF);
    }
}
