/* SPDX-License-Identifier: Apache-2.0
 * tierckpt stop: ends the agents of a job before their linger time is over, and frees their memory. */
#include "agent/lifecycle/stop.h"

#include "agent/driver/term_context.h"
#include "agent/ipc/ipc_server.h"
#include "agent/lifecycle/idle_exit.h"
#include "agent/replication/peer_rpc.h"
#include "agent/state/wire.h"
#include "base/config.h"
#include "core/tree.h"

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

/* To all nodes, or to those that a leader leads. A leader exits soon after it has the message, which may be what relays
 * that of others, so leaders get it last. */
static void send_stop(struct term_context *tc, uint32_t from, uint32_t tree_from_nodes, bool force)
{
    struct wire_note m = {.term = tc->world.term};
    struct writer w = writer_new(0);
    uint32_t count = tc->world.node_count, led = tree_led(count, tc->self, tree_from_nodes);
    bool to_all = term_context_is_coordinator(tc);
    wire_note_encode(&m, &w);
    for (uint32_t leaders = 0; leaders < 2; leaders++) {
        for (uint32_t n = tc->self + 1; n < (to_all ? count : tc->self + led); n++) {
            if (n != from && (tree_led(count, n, tree_from_nodes) > 1) == leaders) {
                rpc_send(tc, n, force ? WIRE_STOP_NOW : WIRE_STOP, &w);
            }
        }
    }
    writer_free(&w);
}

/* Only the coordinator has sessions with all nodes of the term, so it forwards the request of another node. */
static void ask_coordinator(struct term_context *tc, bool force)
{
    struct wire_note m = {.term = tc->world.term};
    struct writer w = writer_new(0);
    wire_note_encode(&m, &w);
    rpc_send(tc, 0, force ? WIRE_STOP_NOW : WIRE_STOP, &w);
    writer_free(&w);
}

void stop_handle(const struct stop_setup *stop, struct term_context *tc, uint32_t from, bool force)
{
    if (term_context_is_coordinator(tc)) {
        send_stop(tc, from, stop->config->tree_from_nodes, force);
    }
    leave(stop, force);
}

void stop_request(const struct stop_setup *stop, bool force)
{
    struct term_context *tc = *stop->term;
    if (tc != NULL && !tc->closed) {
        if (!term_context_is_coordinator(tc)) {
            ask_coordinator(tc, force);
        }
        send_stop(tc, tc->self, stop->config->tree_from_nodes, force);
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
