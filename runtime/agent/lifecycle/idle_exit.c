/* SPDX-License-Identifier: Apache-2.0
 * Ends an idle agent: soon after its job has ended cleanly, otherwise when no trainer has connected for linger_s. */
#include "agent/lifecycle/idle_exit.h"

#include "agent/ipc/ipc_server.h"
#include "agent/lifecycle/fdstore.h"
#include "agent/storage/metadata_writer.h"
#include "base/clock.h"
#include "core/agent_end.h"

static bool draining(const struct term_context *tc)
{
    return tc != NULL && !tc->closed && !version_none(node_decision(tc->node)->drain);
}

static void leave(struct agent *agent, const char *why)
{
    log_info("exiting: %s", why);
    fdstore_stopping(agent->fdstore);
    loop_stop(agent->loop);
}

void idle_exit_tick(struct agent *agent)
{
    /* Notes in the term file count as writes, too: without the note that the job has ended well, the next start would
     * count it as a failed restore of its version. */
    struct agent_use use = {.stop_forced = agent->stop_forced,
                            .trainers = clients_trainers(agent->clients) > 0,
                            .idle_since_ms = agent->idle_since_ms,
                            .job_done = agent->job_done,
                            .writes = draining(agent->term_context) || metadata_is_pending(agent->metadata),
                            .linger_ms = (uint64_t)agent->config.linger_s * 1000};
    switch (agent_leave_judge(&use, clock_ms())) {
    case AGENT_IN_USE:
        agent->idle_since_ms = 0;
        break;
    case AGENT_IDLE:
        agent->idle_since_ms = agent->idle_since_ms ? agent->idle_since_ms : clock_ms();
        break;
    case AGENT_LEAVES_STOPPED:
        leave(agent, "stopped with --force");
        break;
    case AGENT_LEAVES_DONE:
        leave(agent, "the job is done");
        break;
    case AGENT_LEAVES_ALONE:
        leave(agent, "no trainer has connected for linger_s");
        break;
    }
}
