/* SPDX-License-Identifier: Apache-2.0
 * Dispatches messages, heartbeats and session changes from other agents to the parts that handle them. Called by the
 * peer tier. */
#include "agent/peer_messages.h"

#include "agent/drain/archiver.h"
#include "agent/drain/drain.h"
#include "agent/driver/protocol_driver.h"
#include "agent/driver/twins.h"
#include "agent/membership/claim.h"
#include "agent/membership/connectivity.h"
#include "agent/membership/job_holders.h"
#include "agent/membership/reservation.h"
#include "agent/pace/pacing.h"
#include "agent/parts.h"
#include "agent/recovery/recover.h"
#include "agent/recovery/recover_ask.h"
#include "agent/replication/fetch.h"
#include "agent/replication/peer_rpc.h"
#include "agent/scrub/memory_scrub.h"
#include "agent/state/hard_state.h"
#include "agent/storage/health.h"
#include "agent/trainers/trainer_control.h"
#include "base/log.h"
#include "core/holder.h"
#include "core/node_loss.h"
#include "tiers/peer.h"

#include <stdlib.h>
#include <string.h>

/* ---- beats --------------------------------------------------------------------------------------------------- */

static struct wire_beat next_beat(const struct agent *agent)
{
    const struct settings *settings = trainers_settings(agent->trainers);
    const struct term_context *tc = agent->term_context;
    struct wire_beat m = {.term = hard_state_get(agent->state)->term.adopted};
    if (tc != NULL && !tc->closed) {
        m.from_coordinator = tc->coordinator != NULL;
        m.decision = tc->coordinator != NULL ? *coordinator_decision(tc->coordinator) : *node_decision(tc->node);
        m.mem_steps = settings->mem_steps;
        m.storage_steps = settings->storage_steps;
        m.from_step = settings->from_step;
        m.mem_target = settings->mem_target;
        m.storage_target = settings->storage_target;
        m.on_node_loss = (uint8_t)agent->config.on_node_loss;
        m.storage_trouble = tc->coordinator != NULL ? *health_own(agent->health) : (struct trouble){0};
        m.changes = hard_state_get(agent->state)->changes;
        m.archive = tc->coordinator != NULL ? archiver_choice(agent->archiver) : VERSION_NONE;
    }
    return m;
}

static size_t make_beat(void *ctx, struct peer *to, uint8_t *out, size_t cap)
{
    (void)to;
    struct wire_beat m = next_beat(ctx);
    struct writer w = writer_new(cap);
    wire_beat_encode(&m, &w);
    size_t len = w.failed ? 0 : w.len;
    if (len > 0) {
        memcpy(out, w.data, len);
    }
    writer_free(&w);
    return len;
}

static void apply_beat(struct agent *agent, const struct wire_beat *m)
{
    struct term_context *tc = agent->term_context;
    if (tc == NULL || tc->closed || tc->world.term != m->term) {
        return;
    }
    if (m->from_coordinator && tc->coordinator == NULL) {
        const struct settings settings = {.mem_steps = m->mem_steps,
                                          .storage_steps = m->storage_steps,
                                          .from_step = m->from_step,
                                          .mem_target = m->mem_target,
                                          .storage_target = m->storage_target};
        trainers_apply_settings(agent->trainers, &settings, (enum on_node_loss)m->on_node_loss);
        health_handle_beat(agent->health, &m->storage_trouble);
        archiver_want(agent->archiver, m->archive);
    }
    trainers_take_changes(agent->trainers, &m->changes);
    if (m->decision.term == tc->world.term) {
        struct event event = {.type = EVENT_DECISION, .decision = m->decision};
        driver_step_node(tc, &event);
    }
}

void peer_messages_announce(struct term_context *tc)
{
    struct wire_beat m = next_beat(tc->needs.agent);
    struct writer w = writer_new(0);
    wire_beat_encode(&m, &w);
    for (uint32_t n = 0; n < tc->world.node_count; n++) {
        if (n != tc->self) {
            rpc_send(tc, n, WIRE_BEAT, &w);
        }
    }
    writer_free(&w);
    apply_beat(tc->needs.agent, &m);
}

void peer_messages_show_decision(struct term_context *tc, uint32_t node)
{
    struct wire_beat m = next_beat(tc->needs.agent);
    struct writer w = writer_new(0);
    wire_beat_encode(&m, &w);
    rpc_send(tc, node, WIRE_BEAT, &w);
    writer_free(&w);
}

static void handle_beat(void *ctx, struct peer *from, const uint8_t *data, size_t len)
{
    struct agent *agent = ctx;
    struct wire_beat m;
    if (wire_beat_decode(data, len, &m) != TCK_OK) {
        log_warn("malformed heartbeat from node %s", peer_node(from)->name);
        return;
    }
    if (m.term > 0 && rpc_term_context(agent->rpc, from, m.term) != NULL) {
        apply_beat(agent, &m);
    }
}

/* ---- reports to the coordinator ------------------------------------------------------------------------------ */

static void handle_ready(struct term_context *tc, uint32_t node, const void *data, size_t len)
{
    struct wire_ready m;
    if (wire_ready_decode(data, len, &m) != TCK_OK) {
        log_warn("malformed READY from node %s", tc->world.nodes[node].name);
        return;
    }
    twins_compare(tc, node, &(struct wire_roots){.version = m.version, .count = m.count, .roots = m.roots});
    struct event event = {
        .type = EVENT_READY, .node = node, .version = m.version, .layout = m.layout, .to_storage = m.to_storage};
    driver_step_coordinator(tc, &event);
    free(m.roots);
}

static void handle_roots(struct term_context *tc, uint32_t node, const void *data, size_t len)
{
    struct wire_roots m;
    if (wire_roots_decode(data, len, &m) != TCK_OK) {
        log_warn("malformed ROOTS from node %s", tc->world.nodes[node].name);
        return;
    }
    twins_compare(tc, node, &m);
    free(m.roots);
}

static void handle_refused(struct term_context *tc, uint32_t node, const void *data, size_t len)
{
    struct wire_refused m;
    if (wire_refused_decode(data, len, &m) != TCK_OK) {
        log_warn("malformed REFUSED from node %s", tc->world.nodes[node].name);
        return;
    }
    struct event event = {
        .type = EVENT_REFUSED, .node = node, .version = m.version, .refusal = (enum refusal)m.refusal};
    driver_step_coordinator(tc, &event);
    recover_refused(tc->needs.agent->recoveries, tc, (enum refusal)m.refusal);
}

static void handle_progress(struct term_context *tc, uint32_t node, const void *data, size_t len)
{
    struct wire_progress m;
    if (wire_progress_decode(data, len, &m) == TCK_OK) {
        struct event event = {.type = EVENT_PROGRESS, .node = node, .version = m.version};
        driver_step_coordinator(tc, &event);
    }
}

static void handle_fetched(struct term_context *tc, uint32_t node, const void *data, size_t len)
{
    struct wire_fetched m;
    if (wire_fetched_decode(data, len, &m) == TCK_OK) {
        recover_fetched(tc->needs.agent->recoveries, node, &m);
    }
}

static void handle_change(struct term_context *tc, const void *data, size_t len)
{
    struct wire_change m;
    struct error err;
    if (wire_change_decode(data, len, &m) == TCK_OK &&
        trainers_setting(tc->needs.agent->trainers, m.key, m.value, &err) != TCK_OK) {
        log_warn("setting refused: %s", err.text);
    }
}

static void handle_restore_ask(struct term_context *tc, uint32_t node, const void *data, size_t len)
{
    struct wire_ask m;
    if (wire_ask_decode(data, len, &m) == TCK_OK) {
        recover_restore_ask(tc->needs.agent->recoveries, tc, node, m.step);
    }
}

static void handle_as_coordinator(struct term_context *tc, uint32_t node, uint16_t type, const void *data, size_t len)
{
    switch (type) {
    case WIRE_REGISTERED:
        recover_registered(tc->needs.agent->recoveries, tc, node);
        break;
    case WIRE_READY:
        handle_ready(tc, node, data, len);
        break;
    case WIRE_ROOTS:
        handle_roots(tc, node, data, len);
        break;
    case WIRE_REFUSED:
        handle_refused(tc, node, data, len);
        break;
    case WIRE_PROGRESS:
        handle_progress(tc, node, data, len);
        break;
    case WIRE_DRAINED:
        drain_handle_drained(tc->needs.agent->drain, tc, node, data, len);
        break;
    case WIRE_ARCHIVED:
        archiver_handle(tc->needs.agent->archiver, tc, node, data, len);
        break;
    case WIRE_FETCHED:
        handle_fetched(tc, node, data, len);
        break;
    case WIRE_RESTORE_ASK:
        handle_restore_ask(tc, node, data, len);
        break;
    case WIRE_CHANGE:
        handle_change(tc, data, len);
        break;
    case WIRE_DRAIN_ASK: {
        struct event event = {.type = EVENT_DRAIN_ASKED};
        driver_step_coordinator(tc, &event);
        break;
    }
    default:
        log_warn("unknown message %u from node %s", type, tc->world.nodes[node].name);
    }
}

void peer_messages_handle(struct term_context *tc, uint32_t node, uint16_t type, const void *data, size_t len)
{
    if (type == WIRE_FETCH) {
        struct wire_fetch m;
        if (node == 0 && wire_fetch_decode(data, len, &m) == TCK_OK) {
            fetch_handle_ask(tc->needs.agent->fetches, tc, &m);
        }
    } else if (type == WIRE_READABLE) {
        struct wire_readable m;
        if (node == 0 && wire_readable_decode(data, len, &m) == TCK_OK) {
            restore_readable(&tc->needs.agent->restore, tc, &m);
        }
    } else if (type == WIRE_STOP || type == WIRE_STOP_NOW) {
        stop_handle(&tc->needs.agent->stop, tc, node, type == WIRE_STOP_NOW);
    } else if (tc->coordinator != NULL) {
        handle_as_coordinator(tc, node, type, data, len);
    }
}

/* ---- receiving ----------------------------------------------------------------------------------------------- */

/* Any coordinator whose term is not older than ours gets the inventory; its request adopts that term. */
static void handle_inventory_ask(struct agent *agent, struct peer *peer, const void *data, size_t len)
{
    struct wire_ask m;
    if (wire_ask_decode(data, len, &m) != TCK_OK) {
        return;
    }
    if (m.term < hard_state_get(agent->state)->term.adopted) {
        rpc_send_stale(agent->rpc, peer);
        return;
    }
    adopt_term(&agent->adopt, m.term);
    const struct term_context *tc = agent->term_context;
    const struct world *world = tc != NULL && tc->world.term == m.term ? &tc->world : NULL;
    struct writer w = writer_new(0);
    if (recover_make_inventory(agent->recoveries, world, &m, &w) == TCK_OK && !w.failed &&
        peer_send(peer, WIRE_INVENTORY, w.data, w.len) != TCK_OK) {
        log_warn("inventory could not be sent to node %s", peer_node(peer)->name);
    }
    writer_free(&w);
}

static void handle_inventory(struct agent *agent, struct peer *peer, const void *data, size_t len)
{
    struct wire_inventory m;
    if (wire_inventory_decode(data, len, &m) != TCK_OK) {
        log_warn("malformed inventory from node %s", peer_node(peer)->name);
        return;
    }
    struct term_context *tc = rpc_term_context(agent->rpc, peer, m.term);
    if (tc != NULL) {
        recover_inventory(agent->recoveries, peer, &m);
    }
    free(m.known);
}

static void on_message(void *ctx, struct peer *peer, uint16_t type, const void *data, size_t len)
{
    struct agent *agent = ctx;
    struct reader r = reader_of(data, len);
    uint64_t term = read_u64(&r);
    if (r.failed) {
        return;
    }
    switch (type) {
    case WIRE_BEAT:
        handle_beat(agent, peer, data, len);
        return;
    case WIRE_STALE:
        adopt_term(&agent->adopt, term);
        return;
    case WIRE_GONE:
        connectivity_handle_gone(agent->connectivity, term, peer_node(peer));
        return;
    case WIRE_INVENTORY_ASK:
        handle_inventory_ask(agent, peer, data, len);
        return;
    case WIRE_HOLDER_ASK:
        holders_answer(agent->holders, peer, data, len);
        return;
    case WIRE_HOLDER:
        claim_handle_holder(agent->claims, peer, data, len);
        return;
    case WIRE_TERM_ASK:
        reservation_handle_ask(agent->reservations, peer, data, len);
        return;
    case WIRE_TERM_GRANT:
        claim_handle_grant(agent->claims, peer, data, len);
        return;
    case WIRE_INVENTORY:
        handle_inventory(agent, peer, data, len);
        return;
    default:
        break;
    }
    struct term_context *tc = rpc_term_context(agent->rpc, peer, term);
    uint32_t node = tc != NULL ? rpc_node_of(tc, peer) : NONE32;
    if (node != NONE32) {
        peer_messages_handle(tc, node, type, data, len);
    }
}

/* ---- sessions ------------------------------------------------------------------------------------------------ */

static void on_up(void *ctx, struct peer *peer)
{
    struct agent *agent = ctx;
    struct term_context *tc = agent->term_context;
    log_info("node %s is up at %s", peer_node(peer)->name, peer_address(peer));
    uint32_t node = tc != NULL && !tc->closed ? rpc_node_of(tc, peer) : NONE32;
    if (node != NONE32) {
        tc->peers[node] = peer;
        trainers_node_up(agent->trainers, tc, node);
        struct event event = {.type = EVENT_NODE_UP, .node = node};
        driver_step_node(tc, &event);
        tc->registered_pause_ms = 0;
        rpc_send_registered(tc);
        recover_node(agent->recoveries, node, true);
    }
    recover_peer_up(agent->recoveries, peer);
    scrub_peer_up(agent->scrub);
    fetch_peer_changed(agent->fetches, peer);
    connectivity_notify(agent->connectivity, peer);
    connectivity_tick(agent->connectivity);
}

static void on_down(void *ctx, struct peer *peer, const char *why)
{
    struct agent *agent = ctx;
    struct term_context *tc = agent->term_context;
    bool needed = connectivity_is_needed(agent->connectivity, peer_node(peer)->agent_id);
    log_write(needed ? LOG_WARN : LOG_INFO, "node %s is down: %s", peer_node(peer)->name, why);
    uint32_t node = tc != NULL && !tc->closed ? rpc_node_of(tc, peer) : NONE32;
    if (node != NONE32) {
        tc->peers[node] = NULL; /* the peer tier frees it if it is no longer wanted */
        recover_node(agent->recoveries, node, false);
        if (needed) {
            trainers_node_down(tc, node, why);
        }
    }
    fetch_peer_changed(agent->fetches, peer);
}

/* ---- copies -------------------------------------------------------------------------------------------------- */

static tck_status_t on_offer(void *ctx, struct peer *from, const struct peer_offer *offer, struct tier_item *item_out,
                             struct error *err)
{
    const struct agent *agent = ctx;
    return replica_handle_offer(&agent->replicas, from, offer, item_out, err);
}

static tck_status_t on_stored(void *ctx, struct peer *from, const struct peer_offer *offer, const struct error *outcome)
{
    struct agent *agent = ctx;
    tck_status_t status = replica_handle_stored(&agent->replicas, from, offer, outcome);
    agent->tally.received_bytes += status == TCK_OK ? offer->image_bytes - offer->from_base : 0;
    agent->tally.unchanged_in_bytes += status == TCK_OK ? offer->from_base : 0;
    return status;
}

static bool on_base_bad(void *ctx, struct peer *from, const struct tier_item *item, uint32_t chunk)
{
    const struct agent *agent = ctx;
    struct segment *segment;
    uint32_t k;
    struct error why;
    (void)from;
    bool bad = replica_base_is_bad(&agent->replicas, item, chunk, &segment, &k, &why);
    if (bad) {
        scrub_drop_copy(agent->scrub, segment, k, why.text);
    }
    return bad;
}

static tck_status_t on_pull(void *ctx, struct peer *from, const struct peer_offer *want, struct tier_item *item_out,
                            struct error *err)
{
    const struct agent *agent = ctx;
    return replica_handle_pull(&agent->replicas, from, want, item_out, err);
}

static void on_pull_done(void *ctx, struct peer *from, const struct tier_item *item)
{
    struct agent *agent = ctx;
    agent->tally.pulled_bytes += item->image_bytes;
    replica_pull_done(&agent->replicas, from, item);
}

/* ---- what is passed on --------------------------------------------------------------------------------------------
 */

static bool on_relay(void *ctx, uint64_t from, uint64_t to)
{
    const struct agent *agent = ctx;
    return connectivity_relays(agent->connectivity, from, to);
}

/* ---- how fast copies go ------------------------------------------------------------------------------------------ */

static bool take_for_copy(void *ctx, uint64_t bytes)
{
    return pacing_take(ctx, LANE_COPIES, bytes);
}

static void more_for_copy(void *ctx, uint64_t bytes)
{
    pacing_more(ctx, LANE_COPIES, bytes);
}

/* ---- opening ------------------------------------------------------------------------------------------------- */

/* All addresses of an agent have the same port. */
static uint16_t port_of(const struct node_info *node)
{
    const char *colon = strrchr(node->address, ':');
    unsigned long port = colon != NULL ? strtoul(colon + 1, NULL, 10) : 0;
    return port <= UINT16_MAX ? (uint16_t)port : 0;
}

/* The port under which the members of the kept world know this agent; 0 if there is none. Agents that restart together
 * must find each other at their old ports. If the agent died after announcing its address for a world but before
 * keeping that world, this is the announced port. */
static uint16_t port_before(const struct agent *agent)
{
    const struct kept *kept = hard_state_get(agent->state);
    struct world world;
    struct error err;
    if (hard_state_world(agent->state, &world, &err) != TCK_OK) {
        return kept->port;
    }
    int64_t node = world_find_node(&world, agent->config.node);
    bool known = node >= 0 && world.nodes[node].agent_id == kept->agent_id;
    uint16_t port = known ? port_of(&world.nodes[node]) : kept->port;
    world_free(&world);
    return port;
}

static void keep_port(struct agent *agent)
{
    struct kept kept = *hard_state_get(agent->state);
    kept.port = port_of(peers_self(agent->peers));
    hard_state_put(agent->state, &kept);
}

/* Neither may a node count as lost before all its addresses were tried, nor may a start take the job over from trainers
 * whose agent answers at one of them. A quarter of that time is left for the other agent to connect first, and for its
 * answer. */
static uint32_t round_ms(const struct config *config)
{
    uint64_t back_ms = node_loss_back_ms(config->peer_timeout_ms);
    return (back_ms < HOLDER_ANSWER_MS ? (uint32_t)back_ms : HOLDER_ANSWER_MS) / 4 * 3;
}

/* A copy of which nothing moves for longer belongs to a version that is aborted. */
static uint32_t held_timeout_ms(const struct config *config)
{
    uint32_t moving_ms = 3 * config->peer_timeout_ms;
    return config->version_timeout_ms > moving_ms ? config->version_timeout_ms : moving_ms;
}

tck_status_t peer_messages_open(struct agent *agent, struct error *err)
{
    const struct config *c = &agent->config;
    struct peers_setup setup = {
        .loop = agent->loop,
        .pool = agent->pool,
        .job = c->job,
        .self = {.agent_id = hard_state_get(agent->state)->agent_id},
        .secret = agent->secret,
        .device = c->net_device,
        .address = c->net_address,
        .port = c->net_port ? (uint16_t)c->net_port : port_before(agent),
        .tos = (uint8_t)(config_dscp(c) << 2),
        .heartbeat_ms = c->heartbeat_ms,
        .timeout_ms = c->peer_timeout_ms,
        .round_ms = round_ms(c),
        .transfer_timeout_ms = 3 * c->peer_timeout_ms,
        .held_timeout_ms = held_timeout_ms(c),
        .pace = {.take = take_for_copy, .more = more_for_copy, .ctx = agent->pacing},
        .ctx = agent,
        .beat = make_beat,
        .beat_got = handle_beat,
        .up = on_up,
        .down = on_down,
        .message = on_message,
        .offered = on_offer,
        .stored = on_stored,
        .base_bad = on_base_bad,
        .pulled = on_pull,
        .pull_done = on_pull_done,
        .relays = on_relay,
    };
    strcpy(setup.self.name, c->node);
    strcpy(setup.self.domain, c->domain);
    tck_status_t status = peers_new(&setup, &agent->peers, err);
    if (status != TCK_OK && setup.port != c->net_port) {
        log_warn("port %u, used before the restart, is not available; using another one: %s", setup.port, err->text);
        setup.port = 0;
        status = peers_new(&setup, &agent->peers, err);
    }
    if (status == TCK_OK) {
        keep_port(agent);
    }
    return status;
}
