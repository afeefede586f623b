/* SPDX-License-Identifier: Apache-2.0
 * When an agent leaves: soon after its job ended cleanly, else when no trainer has come back for the linger time. */
#include "agent/lifecycle/idle_exit.h"

#include "agent/ipc/ipc_server.h"
#include "agent/lifecycle/fdstore.h"
#include "base/clock.h"

#define AFTER_DONE_MS 2000 /* a drain of another node may still need this one */
#define DRAIN_WAIT_MS 60000

static bool draining(const struct agent *agent)
{
    const struct term_context *tc = agent->term_context;
    return tc && !tc->closed && !version_none(node_decision(tc->node)->drain);
}

/* Notes among it: without the one that the job has ended well the next launch would blame the version. */
static bool writes_down(const struct agent *agent)
{
    return agent->metadata_busy || agent->ledger;
}

static bool may_leave(const struct agent *agent)
{
    uint64_t idle_ms = clock_ms() - agent->idle_since_ms;
    if (agent->job_done && idle_ms >= AFTER_DONE_MS) {
        return (!draining(agent) && !writes_down(agent)) || idle_ms >= DRAIN_WAIT_MS;
    }
    return idle_ms >= (uint64_t)agent->config.linger_s * 1000;
}

void idle_exit_tick(struct agent *agent)
{
    if (agent->stop_forced) {
        log_info("leaving: stopped with --force");
        fdstore_stopping(agent->fdstore);
        loop_stop(agent->loop);
        return;
    }
    if (agent->clients && clients_trainers(agent) > 0) {
        agent->idle_since_ms = 0;
        return;
    }
    if (agent->idle_since_ms == 0) {
        agent->idle_since_ms = clock_ms();
    } else if (may_leave(agent)) {
        log_info("leaving: %s", agent->job_done ? "the job is done" : "no trainer came back");
        fdstore_stopping(agent->fdstore);
        loop_stop(agent->loop);
    }
}
