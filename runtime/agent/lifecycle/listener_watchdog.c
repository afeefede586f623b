/* SPDX-License-Identifier: Apache-2.0
 * Restarts an agent that others can no longer connect to (tiers/ucx_listeners.h). The process cannot repair that: it
 * exits as if it had crashed, and the supervisor starts it again with its memory. */
#include "agent/lifecycle/listener_watchdog.h"

#include "agent/lifecycle/fdstore.h"
#include "agent/lifecycle/idle_exit.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/agent_end.h"
#include "tiers/peer.h"

#include <unistd.h>

#define EXIT_DEAF 1

void listener_watchdog_tick(struct listener_watchdog *w)
{
    bool listening = peers_are_listening(w->peers);
    struct agent_hearing hearing = {.listening = listening,
                                    .job_done = idle_exit_is_job_done(w->idle_exit),
                                    .kept = !listening && fdstore_has_all(w->fdstore),
                                    .since_ms = w->deaf_ms};
    switch (agent_deaf_judge(&hearing, clock_ms())) {
    case AGENT_HEARS:
    case AGENT_STAYS_DEAF:
        break;
    case AGENT_TURNS_DEAF:
        w->deaf_ms = clock_ms();
        log_error("out of file descriptors: UCX has closed a port that other agents connect to; %s",
                  hearing.kept ? "this agent will exit, to be started again with its memory"
                               : "sessions that end now cannot be opened again until this agent is restarted");
        break;
    case AGENT_ENDS_DEAF:
        log_error("exiting to be started again: other agents cannot connect to this one");
        _exit(EXIT_DEAF);
    }
}
