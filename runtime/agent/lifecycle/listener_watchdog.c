/* SPDX-License-Identifier: Apache-2.0
 * Restarts an agent that others can no longer connect to (tiers/ucx_listeners.h). The process cannot recover from that,
 * so it exits as if it had crashed, and the supervisor restarts it with its memory. */
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
    struct agent_hearing listeners = {.listening = listening,
                                      .job_done = idle_exit_is_job_done(w->idle_exit),
                                      .kept = !listening && fdstore_has_all(w->fdstore),
                                      .since_ms = w->unreachable_ms};
    switch (agent_deaf_judge(&listeners, clock_ms())) {
    case AGENT_HEARS:
    case AGENT_STAYS_DEAF:
        break;
    case AGENT_TURNS_DEAF:
        w->unreachable_ms = clock_ms();
        log_error("out of file descriptors: UCX has closed a port that other agents connect to; %s",
                  listeners.kept ? "this agent will exit and be restarted with its memory"
                                 : "sessions that end cannot be reopened until this agent is restarted");
        break;
    case AGENT_ENDS_DEAF:
        log_error("exiting so that the supervisor restarts this agent: other agents cannot connect to it");
        _exit(EXIT_DEAF);
    }
}
