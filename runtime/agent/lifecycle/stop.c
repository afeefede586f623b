/* SPDX-License-Identifier: Apache-2.0
 * tierckpt stop: the agents of a job leave before their linger time is over, and their memory goes with them. */
#include "agent/lifecycle/stop.h"

#include "agent/driver/term_context.h"
#include "agent/ipc/ipc_server.h"
#include "agent/replication/peer_rpc.h"
#include "agent/state/wire.h"

static void leave(struct agent *agent, bool force)
{
    if (force || clients_trainers(agent) == 0) {
        log_info("told to leave by tierckpt stop%s", force ? " --force" : "");
        agent->job_done = true;
        agent->stop_forced = force;
    } else {
        log_warn("tierckpt stop was called on another node, but %u trainers live here: this agent stays",
                 clients_trainers(agent));
    }
}

/* The coordinator has sessions with all nodes of the term; another node asks it to pass the word on. */
static void pass_on(struct term_context *tc, uint32_t from, bool force)
{
    struct wire_note m = {.term = tc->world.term};
    struct writer w = writer_new(0);
    uint16_t type = force ? WIRE_STOP_NOW : WIRE_STOP;
    wire_note_encode(&m, &w);
    if (!term_context_is_coordinator(tc)) {
        rpc_send(tc, 0, type, &w);
    }
    for (uint32_t n = 1; term_context_is_coordinator(tc) && n < tc->world.node_count; n++) {
        if (n != from) {
            rpc_send(tc, n, type, &w);
        }
    }
    writer_free(&w);
}

void stop_handle(struct term_context *tc, uint32_t from, bool force)
{
    if (term_context_is_coordinator(tc)) {
        pass_on(tc, from, force);
    }
    leave(tc->agent, force);
}

void stop_request(struct agent *agent, bool force)
{
    struct term_context *tc = agent->term_context;
    if (tc && !tc->closed) {
        pass_on(tc, tc->self, force);
    }
    leave(agent, force);
}

tck_status_t stop_check(const struct agent *agent, struct version held, struct error *err)
{
    const struct term_context *tc = agent->term_context;
    struct version published = tc ? node_decision(tc->node)->published : VERSION_NONE;
    uint32_t trainers = clients_trainers(agent);
    if (trainers > 0) {
        return error_set(err, TCK_ERR_BUSY,
                         "%u trainers of job %s live on node %s: end them first (--force takes their memory tier away)",
                         trainers, agent->config.job, agent->config.node);
    }
    if (version_cmp(held, published) > 0) {
        return error_set(err, TCK_ERR_BUSY,
                         "version %llu.%llu is in memory alone and would be lost: `tierckpt drain --wait` brings it to "
                         "storage, --force gives it up",
                         (unsigned long long)held.term, (unsigned long long)held.step);
    }
    return TCK_OK;
}
