/* SPDX-License-Identifier: Apache-2.0
 * Messages with other agents: beats and decisions, reports to the coordinator, offers and pulls of copies. */
#include "agent/replication/peer_rpc.h"

#include "agent/driver/term_context.h"
#include "agent/state/adopt.h"
#include "agent/storage/health.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define REGISTERED_FIRST_MS 50 /* pause before it is sent again, doubled each time up to */
#define REGISTERED_LAST_MS  1000

uint32_t rpc_node_of(const struct term_context *tc, const struct peer *peer)
{
    const struct node_info *info = peer_node(peer);
    int64_t node = world_find_node(&tc->world, info->name);
    return node >= 0 && tc->world.nodes[node].agent_id == info->agent_id ? (uint32_t)node : NONE32;
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

void rpc_send_stale(struct agent *agent, struct peer *peer)
{
    send_note(peer, WIRE_STALE, hard_state_get(agent->state)->term.adopted);
}

void rpc_send_gone(struct peer *peer, uint64_t term)
{
    send_note(peer, WIRE_GONE, term);
}

struct term_context *rpc_term_context(struct agent *agent, struct peer *peer, uint64_t term)
{
    struct term_state t = hard_state_get(agent->state)->term;
    switch (term_judge(&t, term)) {
    case TERM_NEWER:
        adopt_term(agent, term);
        return NULL;
    case TERM_STALE:
        agent->stale_messages++;
        rpc_send_stale(agent, peer);
        return NULL;
    case TERM_GIVER:
        return NULL;
    case TERM_CURRENT:
        break;
    }
    struct term_context *tc = agent->term_context;
    return tc != NULL && tc->world.term == term && !tc->closed ? tc : NULL;
}

/* ---- beats --------------------------------------------------------------------------------------------------- */

void rpc_make_beat(struct agent *agent, struct wire_beat *out)
{
    const struct kept *kept = hard_state_get(agent->state);
    struct term_context *tc = agent->term_context;
    *out = (struct wire_beat){.term = kept->term.adopted};
    if (tc != NULL && !tc->closed) {
        out->from_coordinator = tc->coordinator != NULL;
        out->decision = tc->coordinator != NULL ? *coordinator_decision(tc->coordinator) : *node_decision(tc->node);
        out->mem_steps = agent->settings.mem_steps;
        out->storage_steps = agent->settings.storage_steps;
        out->from_step = agent->settings.from_step;
        out->mem_target = agent->settings.mem_target;
        out->storage_target = agent->settings.storage_target;
        out->on_node_loss = (uint8_t)agent->config.on_node_loss;
        out->storage_trouble = tc->coordinator != NULL ? *health_own(agent->health) : (struct trouble){0};
    }
}

void rpc_announce(struct term_context *tc)
{
    struct wire_beat m;
    rpc_make_beat(tc->agent, &m);
    struct writer w = writer_new(0);
    wire_beat_encode(&m, &w);
    for (uint32_t n = 0; n < tc->world.node_count; n++) {
        if (n != tc->self) {
            rpc_send(tc, n, WIRE_BEAT, &w);
        }
    }
    writer_free(&w);
    tc->agent->hooks->beat(tc->agent, &m);
}

/* ---- sending ------------------------------------------------------------------------------------------------- */

void rpc_send(struct term_context *tc, uint32_t node, uint16_t type, struct writer *w)
{
    struct peer *peer = tc->peers[node];
    if (w->failed || peer == NULL || !peer_is_up(peer)) {
        return; /* like a lost message: the sender repeats it if need be */
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
        tc->agent->hooks->message(tc, tc->self, type, w->data, w->len);
    }
}

void rpc_send_registered(struct term_context *tc)
{
    if (term_context_digests_due(tc)) {
        return; /* the inventory would lack those versions: sent at the tick that finds the digests computed */
    }
    struct wire_note m = {.term = tc->world.term};
    struct writer w = writer_new(0);
    uint64_t pause_ms = tc->tell_registered_pause_ms ? 2 * tc->tell_registered_pause_ms : REGISTERED_FIRST_MS;
    tc->told_registered_ms = clock_ms();
    tc->tell_registered_pause_ms = pause_ms < REGISTERED_LAST_MS ? pause_ms : REGISTERED_LAST_MS;
    wire_note_encode(&m, &w);
    rpc_send_coordinator(tc, WIRE_REGISTERED, &w);
    writer_free(&w);
}

void rpc_registered_tick(struct term_context *tc)
{
    bool heard = tc->readable_known && node_decision(tc->node)->based;
    if (!heard && clock_ms() - tc->told_registered_ms >= tc->tell_registered_pause_ms) {
        rpc_send_registered(tc);
    }
}
