/* SPDX-License-Identifier: Apache-2.0
 * tierckpt stop: ends the agents of a job before their linger time is over, and frees their memory. */
#include "agent/lifecycle/stop.h"

#include "agent/driver/term_context.h"
#include "agent/ipc/ipc_server.h"
#include "agent/lifecycle/idle_exit.h"
#include "agent/replication/peer_rpc.h"
#include "agent/state/wire.h"

#include <inttypes.h>

static void leave(const struct stop_setup *stop, bool force)
{
    if (force || (clients_trainers(*stop->clients) == 0 && !stop->awaits_trainers(stop->ctx))) {
        log_info("exiting: tierckpt stop%s was called", force ? " --force" : "");
        idle_exit_stop(stop->idle_exit, force);
    } else if (clients_trainers(*stop->clients) == 0) {
        log_warn("tierckpt stop was called on another node, but this agent has just been started again, and trainers "
                 "may be alive here: it keeps running");
    } else {
        log_warn("tierckpt stop was called on another node, but %u trainers are running here: this agent keeps running",
                 clients_trainers(*stop->clients));
    }
}

/* Only the coordinator has sessions with all nodes of the term, so it forwards the request of another node. */
static void forward_stop(struct term_context *tc, uint32_t from, bool force)
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

void stop_handle(const struct stop_setup *stop, struct term_context *tc, uint32_t from, bool force)
{
    if (term_context_is_coordinator(tc)) {
        forward_stop(tc, from, force);
    }
    leave(stop, force);
}

void stop_request(const struct stop_setup *stop, bool force)
{
    struct term_context *tc = *stop->term;
    if (tc != NULL && !tc->closed) {
        forward_stop(tc, tc->self, force);
    }
    leave(stop, force);
}

tck_status_t stop_check_trainers(const struct stop_setup *stop, struct error *err)
{
    uint32_t trainers = clients_trainers(*stop->clients);
    if (trainers > 0) {
        return error_set(
            err, TCK_ERR_BUSY,
            "%u trainers of job %s run on node %s: end them first (--force frees their memory tier all the same)",
            trainers, stop->config->job, stop->config->node);
    }
    if (stop->awaits_trainers(stop->ctx)) {
        return error_set(err, TCK_ERR_BUSY,
                         "the agent of node %s has just been started again, and does not know yet whether trainers of "
                         "job %s are alive: try again in a few seconds (--force frees their memory tier all the same)",
                         stop->config->node, stop->config->job);
    }
    return TCK_OK;
}

tck_status_t stop_check_memory(const struct stop_setup *stop, struct version held, struct error *err)
{
    const struct term_context *tc = *stop->term;
    struct version published = tc != NULL ? node_decision(tc->node)->published : VERSION_NONE;
    if (version_cmp(held, published) > 0) {
        return error_set(err, TCK_ERR_BUSY,
                         "version %" PRIu64 ".%" PRIu64
                         " is only in memory and would be lost: `tierckpt drain --wait` publishes it, "
                         "--force discards it",
                         held.term, held.step);
    }
    return TCK_OK;
}
