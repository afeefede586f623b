/* SPDX-License-Identifier: Apache-2.0
 * Sends messages to other agents, and determines which of their messages are valid: those of the current term. */
#include "agent/replication/peer_rpc.h"

#include "agent/driver/term_context.h"
#include "agent/state/adopt.h"
#include "agent/state/hard_state.h"
#include "base/clock.h"
#include "core/term.h"
#include "tiers/peer.h"

#include <stdlib.h>

#define REGISTERED_FIRST_MS 50 /* pause before it is resent; doubled each time up to */
#define REGISTERED_LAST_MS  1000

struct rpc {
    struct rpc_setup needs;
    uint64_t stale_messages; /* of older terms, dropped */
};

uint32_t rpc_node_of(const struct term_context *tc, const struct peer *peer)
{
    const struct node_info *info = peer_node(peer);
    int64_t node = world_find_agent(&tc->world, info->agent_id); /* called for each message, so not by name */
    return node >= 0 && strcmp(tc->world.nodes[node].name, info->name) == 0 ? (uint32_t)node : NONE32;
}

/* ---- terms --------------------------------------------------------------------------------------------------- */

static void send_note(struct peer *peer, uint16_t type, uint64_t term)
{
    struct wire_note m = {.term = term};
    struct writer w = writer_new(0);
    wire_note_encode(&m, &w);
    if (!w.failed && peer_send(peer, type, w.data, w.len) != TCK_OK) {
        log_debug("could not notify node %s that its term is over", peer_node(peer)->name);
    }
    writer_free(&w);
}

void rpc_send_stale(const struct rpc *rpc, struct peer *peer)
{
    send_note(peer, WIRE_STALE, hard_state_get(rpc->needs.state)->term.adopted);
}

uint64_t rpc_stale_messages(const struct rpc *rpc)
{
    return rpc->stale_messages;
}

void rpc_send_gone(struct peer *peer, uint64_t term)
{
    send_note(peer, WIRE_GONE, term);
}

struct term_context *rpc_term_context(struct rpc *rpc, struct peer *peer, uint64_t term)
{
    struct term_state t = hard_state_get(rpc->needs.state)->term;
    switch (term_judge(&t, term)) {
    case TERM_NEWER:
        adopt_term(rpc->needs.adopt, term);
        return NULL;
    case TERM_STALE:
        rpc->stale_messages++;
        rpc_send_stale(rpc, peer);
        return NULL;
    case TERM_GIVER:
        return NULL;
    case TERM_CURRENT:
        break;
    }
    struct term_context *tc = *rpc->needs.term;
    return tc != NULL && tc->world.term == term && !tc->closed ? tc : NULL;
}

/* ---- sending ------------------------------------------------------------------------------------------------- */

void rpc_send(struct term_context *tc, uint32_t node, uint16_t type, struct writer *w)
{
    struct peer *peer = tc->peers[node];
    if (w->failed || peer == NULL || !peer_is_up(peer)) {
        return; /* as if the message were lost: the sender repeats it if necessary */
    }
    if (peer_send(peer, type, w->data, w->len) != TCK_OK) {
        log_debug("message %u to node %s is lost", type, tc->world.nodes[node].name);
    }
}

void rpc_send_coordinator(struct term_context *tc, uint16_t type, struct writer *w)
{
    if (!term_context_is_coordinator(tc)) {
        rpc_send(tc, 0, type, w);
    } else if (!w->failed) {
        tc->needs.hooks->message(tc, tc->self, type, w->data, w->len);
    }
}

void rpc_send_registered(struct term_context *tc)
{
    if (term_context_digests_due(tc)) {
        return; /* sent at the first tick after that: until then, the inventory would lack those versions */
    }
    struct wire_note m = {.term = tc->world.term};
    struct writer w = writer_new(0);
    uint64_t pause_ms = tc->registered_pause_ms ? 2 * tc->registered_pause_ms : REGISTERED_FIRST_MS;
    tc->registered_sent_ms = clock_ms();
    tc->registered_pause_ms = pause_ms < REGISTERED_LAST_MS ? pause_ms : REGISTERED_LAST_MS;
    wire_note_encode(&m, &w);
    rpc_send_coordinator(tc, WIRE_REGISTERED, &w);
    writer_free(&w);
}

void rpc_registered_tick(struct term_context *tc)
{
    bool heard = tc->readable_known && node_decision(tc->node)->based;
    if (!heard && clock_ms() - tc->registered_sent_ms >= tc->registered_pause_ms) {
        rpc_send_registered(tc);
    }
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

tck_status_t rpc_new(const struct rpc_setup *setup, struct rpc **out, struct error *err)
{
    struct rpc *rpc = calloc(1, sizeof(*rpc));
    if (rpc == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    rpc->needs = *setup;
    *out = rpc;
    return TCK_OK;
}

void rpc_free(struct rpc *rpc)
{
    free(rpc);
}

void rpc_ask_drain(struct term_context *tc)
{
    struct wire_note m = {.term = tc->world.term};
    struct writer w = writer_new(0);
    wire_note_encode(&m, &w);
    rpc_send_coordinator(tc, WIRE_DRAIN_ASK, &w);
    writer_free(&w);
}
