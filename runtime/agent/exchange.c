/* SPDX-License-Identifier: Apache-2.0
 * Messages with other agents: beats and decisions, reports to the coordinator, offers and pulls of copies. */
#include "agent/agent.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define REGISTERED_FIRST_MS 50 /* pause before it is told again, doubled each time up to */
#define REGISTERED_LAST_MS  1000

uint32_t exchange_node_of(const struct formation *f, const struct peer *peer)
{
    const struct node_info *info = peer_node(peer);
    int64_t node = world_find_node(&f->world, info->name);
    return node >= 0 && f->world.nodes[node].agent_id == info->agent_id ? (uint32_t)node : NONE32;
}

/* ---- terms --------------------------------------------------------------------------------------------------- */

static void tell(struct peer *peer, uint16_t type, uint64_t term)
{
    struct wire_note m = {.term = term};
    struct writer w = writer_new(0);
    wire_note_encode(&m, &w);
    if (!w.failed && peer_send(peer, type, w.data, w.len) != TCK_OK) {
        log_debug("node %s could not be told that its term is over", peer_node(peer)->name);
    }
    writer_free(&w);
}

void exchange_tell_stale(struct agent *agent, struct peer *peer)
{
    tell(peer, WIRE_STALE, state_get(agent->state)->term.adopted);
}

void exchange_tell_gone(struct peer *peer, uint64_t term)
{
    tell(peer, WIRE_GONE, term);
}

struct formation *exchange_formation(struct agent *agent, struct peer *peer, uint64_t term)
{
    struct term_state t = state_get(agent->state)->term;
    switch (term_judge(&t, term)) {
    case TERM_NEWER:
        agent_adopt(agent, term);
        return NULL;
    case TERM_STALE:
        agent->stale_messages++;
        exchange_tell_stale(agent, peer);
        return NULL;
    case TERM_GIVER:
        return NULL;
    case TERM_CURRENT:
        break;
    }
    struct formation *f = agent->formation;
    return f && f->world.term == term && !f->closed ? f : NULL;
}

/* ---- beats --------------------------------------------------------------------------------------------------- */

void exchange_beat(struct agent *agent, struct wire_beat *out)
{
    const struct kept *kept = state_get(agent->state);
    struct formation *f = agent->formation;
    *out = (struct wire_beat){.term = kept->term.adopted};
    if (f && !f->closed) {
        out->from_coordinator = f->coordinator != NULL;
        out->decision = f->coordinator ? *coordinator_decision(f->coordinator) : *node_decision(f->node);
        out->mem_steps = agent->settings.mem_steps;
        out->storage_steps = agent->settings.storage_steps;
        out->from_step = agent->settings.from_step;
        out->mem_target = agent->settings.mem_target;
        out->storage_target = agent->settings.storage_target;
        out->on_node_loss = (uint8_t)agent->config.on_node_loss;
        out->storage_trouble = f->coordinator ? agent->trouble : (struct trouble){0};
    }
}

static size_t beat(void *ctx, struct peer *to, uint8_t *out, size_t cap)
{
    (void)to;
    struct wire_beat m;
    exchange_beat(ctx, &m);
    struct writer w = writer_new(cap);
    wire_beat_encode(&m, &w);
    size_t len = w.failed ? 0 : w.len;
    if (len > 0) {
        memcpy(out, w.data, len);
    }
    writer_free(&w);
    return len;
}

void exchange_heard_beat(struct agent *agent, const struct wire_beat *m)
{
    struct formation *f = agent->formation;
    if (!f || f->closed || f->world.term != m->term) {
        return;
    }
    if (m->from_coordinator && !f->coordinator) {
        agent->settings = (struct settings){.mem_steps = m->mem_steps,
                                            .storage_steps = m->storage_steps,
                                            .from_step = m->from_step,
                                            .mem_target = m->mem_target,
                                            .storage_target = m->storage_target};
        agent->config.on_node_loss = (enum on_node_loss)m->on_node_loss;
        trainers_boards(agent);
        health_heard(agent, &m->storage_trouble);
    }
    if (m->decision.term == f->world.term) {
        struct event event = {.type = EVENT_DECISION, .decision = m->decision};
        drive_node(f, &event);
    }
}

static void beat_got(void *ctx, struct peer *from, const uint8_t *data, size_t len)
{
    struct agent *agent = ctx;
    struct wire_beat m;
    if (wire_beat_decode(data, len, &m) != TCK_OK) {
        log_warn("malformed beat of node %s", peer_node(from)->name);
        return;
    }
    if (m.term > 0 && exchange_formation(agent, from, m.term)) {
        exchange_heard_beat(agent, &m);
    }
}

void exchange_announce(struct formation *f)
{
    struct wire_beat m;
    exchange_beat(f->agent, &m);
    struct writer w = writer_new(0);
    wire_beat_encode(&m, &w);
    for (uint32_t n = 0; n < f->world.node_count; n++) {
        if (n != f->self) {
            exchange_send(f, n, WIRE_BEAT, &w);
        }
    }
    writer_free(&w);
    exchange_heard_beat(f->agent, &m);
}

/* ---- sending ------------------------------------------------------------------------------------------------- */

void exchange_send(struct formation *f, uint32_t node, uint16_t type, struct writer *w)
{
    struct peer *peer = f->peers[node];
    if (w->failed || !peer || !peer_is_up(peer)) {
        return; /* as a lost message: whoever needs it sends it again */
    }
    if (peer_send(peer, type, w->data, w->len) != TCK_OK) {
        log_debug("message %u to node %s is lost", type, f->world.nodes[node].name);
    }
}

static void handle(struct formation *f, uint32_t node, uint16_t type, const void *data, size_t len);

void exchange_send_coordinator(struct formation *f, uint16_t type, struct writer *w)
{
    if (!formation_is_coordinator(f)) {
        exchange_send(f, 0, type, w);
    } else if (!w->failed) {
        handle(f, f->self, type, w->data, w->len);
    }
}

/* ---- reports to the coordinator ------------------------------------------------------------------------------ */

static void heard_ready(struct formation *f, uint32_t node, const void *data, size_t len)
{
    struct wire_ready m;
    if (wire_ready_decode(data, len, &m) != TCK_OK) {
        log_warn("malformed READY of node %s", f->world.nodes[node].name);
        return;
    }
    twins_compare(f, node, &(struct wire_roots){.version = m.version, .count = m.count, .roots = m.roots});
    struct event event = {
        .type = EVENT_READY, .node = node, .version = m.version, .layout = m.layout, .to_storage = m.to_storage};
    drive_coordinator(f, &event);
    free(m.roots);
}

static void heard_roots(struct formation *f, uint32_t node, const void *data, size_t len)
{
    struct wire_roots m;
    if (wire_roots_decode(data, len, &m) != TCK_OK) {
        log_warn("malformed ROOTS of node %s", f->world.nodes[node].name);
        return;
    }
    twins_compare(f, node, &m);
    free(m.roots);
}

static void heard_refused(struct formation *f, uint32_t node, const void *data, size_t len)
{
    struct wire_refused m;
    if (wire_refused_decode(data, len, &m) != TCK_OK) {
        log_warn("malformed REFUSED of node %s", f->world.nodes[node].name);
        return;
    }
    struct event event = {
        .type = EVENT_REFUSED, .node = node, .version = m.version, .refusal = (enum refusal)m.refusal};
    drive_coordinator(f, &event);
    recover_refused(f, (enum refusal)m.refusal);
}

static void heard_fetched(struct formation *f, uint32_t node, const void *data, size_t len)
{
    struct wire_fetched m;
    if (wire_fetched_decode(data, len, &m) == TCK_OK) {
        recover_fetched(f, node, &m);
    }
}

static void heard_change(struct formation *f, const void *data, size_t len)
{
    struct wire_change m;
    struct error err;
    if (wire_change_decode(data, len, &m) == TCK_OK && trainers_setting(f->agent, m.key, m.value, &err) != TCK_OK) {
        log_warn("setting refused: %s", err.text);
    }
}

static void heard_restore_ask(struct formation *f, const void *data, size_t len)
{
    struct wire_ask m;
    if (wire_ask_decode(data, len, &m) == TCK_OK) {
        recover_restore_ask(f, m.step);
    }
}

static void handle_as_coordinator(struct formation *f, uint32_t node, uint16_t type, const void *data, size_t len)
{
    switch (type) {
    case WIRE_REGISTERED:
        recover_registered(f, node);
        break;
    case WIRE_READY:
        heard_ready(f, node, data, len);
        break;
    case WIRE_ROOTS:
        heard_roots(f, node, data, len);
        break;
    case WIRE_REFUSED:
        heard_refused(f, node, data, len);
        break;
    case WIRE_DRAINED:
        drain_heard(f, node, data, len);
        break;
    case WIRE_FETCHED:
        heard_fetched(f, node, data, len);
        break;
    case WIRE_RESTORE_ASK:
        heard_restore_ask(f, data, len);
        break;
    case WIRE_CHANGE:
        heard_change(f, data, len);
        break;
    case WIRE_DRAIN_ASK: {
        struct event event = {.type = EVENT_DRAIN_ASKED};
        drive_coordinator(f, &event);
        break;
    }
    default:
        log_warn("unknown message %u of node %s", type, f->world.nodes[node].name);
    }
}

static void handle(struct formation *f, uint32_t node, uint16_t type, const void *data, size_t len)
{
    if (type == WIRE_FETCH) {
        struct wire_fetch m;
        if (node == 0 && wire_fetch_decode(data, len, &m) == TCK_OK) {
            fetch_asked(f, &m);
        }
    } else if (type == WIRE_READABLE) {
        struct wire_readable m;
        if (node == 0 && wire_readable_decode(data, len, &m) == TCK_OK) {
            restore_readable(f, &m);
        }
    } else if (type == WIRE_STOP || type == WIRE_STOP_NOW) {
        stop_heard(f, node, type == WIRE_STOP_NOW);
    } else if (f->coordinator) {
        handle_as_coordinator(f, node, type, data, len);
    }
}

/* ---- receiving ----------------------------------------------------------------------------------------------- */

/* Inventories are given to whoever leads a term at least as new as ours; asking adopts it. */
static void heard_inventory_ask(struct agent *agent, struct peer *peer, const void *data, size_t len)
{
    struct wire_ask m;
    if (wire_ask_decode(data, len, &m) != TCK_OK) {
        return;
    }
    if (m.term < state_get(agent->state)->term.adopted) {
        exchange_tell_stale(agent, peer);
        return;
    }
    agent_adopt(agent, m.term);
    struct writer w = writer_new(0);
    if (recover_tell_inventory(agent, &m, &w) == TCK_OK && !w.failed &&
        peer_send(peer, WIRE_INVENTORY, w.data, w.len) != TCK_OK) {
        log_warn("inventory could not be sent to node %s", peer_node(peer)->name);
    }
    writer_free(&w);
}

static void heard_inventory(struct agent *agent, struct peer *peer, const void *data, size_t len)
{
    struct wire_inventory m;
    if (wire_inventory_decode(data, len, &m) != TCK_OK) {
        log_warn("malformed inventory of node %s", peer_node(peer)->name);
        return;
    }
    struct formation *f = exchange_formation(agent, peer, m.term);
    if (f) {
        recover_inventory(f, peer, &m);
    }
    free(m.known);
}

static void message(void *ctx, struct peer *peer, uint16_t type, const void *data, size_t len)
{
    struct agent *agent = ctx;
    struct reader r = reader_of(data, len);
    uint64_t term = read_u64(&r);
    if (r.failed) {
        return;
    }
    switch (type) {
    case WIRE_BEAT:
        beat_got(agent, peer, data, len);
        return;
    case WIRE_STALE:
        agent_adopt(agent, term);
        return;
    case WIRE_GONE:
        meet_gone(agent, term, peer_node(peer));
        return;
    case WIRE_INVENTORY_ASK:
        heard_inventory_ask(agent, peer, data, len);
        return;
    case WIRE_HOLDER_ASK:
        holders_answer(agent, peer, data, len);
        return;
    case WIRE_HOLDER:
        claim_heard(agent, peer, data, len);
        return;
    case WIRE_TERM_ASK:
        reserving_asked(agent, peer, data, len);
        return;
    case WIRE_TERM_GRANT:
        claim_granted(agent, peer, data, len);
        return;
    case WIRE_INVENTORY:
        heard_inventory(agent, peer, data, len);
        return;
    default:
        break;
    }
    struct formation *f = exchange_formation(agent, peer, term);
    uint32_t node = f ? exchange_node_of(f, peer) : NONE32;
    if (node != NONE32) {
        handle(f, node, type, data, len);
    }
}

void exchange_registered(struct formation *f)
{
    if (formation_digests_due(f)) {
        return; /* what it says next is what it has: said at the tick that finds the digests made */
    }
    struct wire_note m = {.term = f->world.term};
    struct writer w = writer_new(0);
    uint64_t pause_ms = f->tell_registered_pause_ms ? 2 * f->tell_registered_pause_ms : REGISTERED_FIRST_MS;
    f->told_registered_ms = clock_ms();
    f->tell_registered_pause_ms = pause_ms < REGISTERED_LAST_MS ? pause_ms : REGISTERED_LAST_MS;
    wire_note_encode(&m, &w);
    exchange_send_coordinator(f, WIRE_REGISTERED, &w);
    writer_free(&w);
}

void exchange_registered_tick(struct formation *f)
{
    bool heard = f->readable_known && node_decision(f->node)->based;
    if (!heard && clock_ms() - f->told_registered_ms >= f->tell_registered_pause_ms) {
        exchange_registered(f);
    }
}

/* ---- sessions ------------------------------------------------------------------------------------------------ */

static void up(void *ctx, struct peer *peer)
{
    struct agent *agent = ctx;
    struct formation *f = agent->formation;
    log_info("node %s is up at %s", peer_node(peer)->name, peer_node(peer)->address);
    uint32_t node = f && !f->closed ? exchange_node_of(f, peer) : NONE32;
    if (node != NONE32) {
        f->peers[node] = peer;
        trainers_node_up(f, node);
        struct event event = {.type = EVENT_NODE_UP, .node = node};
        drive_node(f, &event);
        f->tell_registered_pause_ms = 0;
        exchange_registered(f);
        recover_node(f, node, true);
    }
    recover_peer_up(agent, peer);
    fetch_peer_changed(agent, peer);
    meet_tell(agent, peer);
    meet_tick(agent);
}

static void down(void *ctx, struct peer *peer, const char *why)
{
    struct agent *agent = ctx;
    struct formation *f = agent->formation;
    log_warn("node %s is down: %s", peer_node(peer)->name, why);
    uint32_t node = f && !f->closed ? exchange_node_of(f, peer) : NONE32;
    if (node != NONE32) {
        f->peers[node] = NULL; /* an unwanted one is forgotten by the peer tier */
        recover_node(f, node, false);
        trainers_node_down(f, node, why);
    }
    fetch_peer_changed(agent, peer);
}

/* Sessions are wanted with the coordinator, with those this node sends copies to, and with those it holds copies for;
 * the coordinator wants all. Others are met when a recovery needs them. */
static void mark_wanted(const struct formation *f, bool *wanted)
{
    for (uint32_t n = 0; n < f->world.node_count; n++) {
        wanted[n] = n == 0 || f->coordinator;
    }
    for (uint32_t i = 0; i < f->setup.shard_count; i++) {
        const struct node_shard *s = &f->shards[i];
        for (uint32_t h = 0; h < s->holder_count; h++) {
            wanted[s->holders[h]] = true;
        }
        if (s->held && s->world_shard != NONE32) {
            wanted[f->placement.shards[s->world_shard].source] = true;
        }
    }
}

void exchange_connect(struct formation *f)
{
    bool *wanted = calloc(f->world.node_count, sizeof *wanted);
    if (!wanted) {
        log_error("out of memory: no session with other nodes");
        return;
    }
    mark_wanted(f, wanted);
    for (uint32_t n = 0; n < f->world.node_count; n++) {
        struct error err;
        if (n == f->self || !wanted[n]) {
            continue;
        }
        meet_node(f->agent, f->world.term, &f->world.nodes[n]);
        if (peers_want(f->agent->peers, &f->world.nodes[n], &f->peers[n], &err) != TCK_OK) {
            f->peers[n] = NULL;
        }
    }
    free(wanted);
}

static uint16_t port_of(const struct node_info *node)
{
    const char *colon = strrchr(node->address, ':');
    unsigned long port = colon ? strtoul(colon + 1, NULL, 10) : 0;
    return port <= UINT16_MAX ? (uint16_t)port : 0;
}

/* The port under which the kept world's members know this agent. If it died between telling its address for a world
 * and keeping that, the one it told; 0 if there is none. Agents that restart one after the other, or together, would
 * not find each other again if each came back at another one. */
static uint16_t port_before(const struct agent *agent)
{
    const struct kept *kept = state_get(agent->state);
    struct world world;
    struct error err;
    if (state_world(agent->state, &world, &err) != TCK_OK) {
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
    struct kept kept = *state_get(agent->state);
    kept.port = port_of(peers_self(agent->peers));
    state_put(agent->state, &kept);
}

tck_status_t exchange_open(struct agent *agent, struct error *err)
{
    const struct config *c = &agent->config;
    struct peers_setup setup = {
        .loop = agent->loop,
        .pool = agent->pool,
        .job = c->job,
        .self = {.agent_id = state_get(agent->state)->agent_id},
        .secret = agent->secret,
        .device = c->net_device,
        .address = c->net_address,
        .port = c->net_port ? (uint16_t)c->net_port : port_before(agent),
        .heartbeat_ms = c->heartbeat_ms,
        .timeout_ms = c->peer_timeout_ms,
        .transfer_timeout_ms = 3 * c->peer_timeout_ms,
        .ctx = agent,
        .beat = beat,
        .beat_got = beat_got,
        .up = up,
        .down = down,
        .message = message,
        .offered = copies_offered,
        .stored = copies_stored,
        .pulled = copies_pulled,
        .pull_done = copies_pull_done,
    };
    strcpy(setup.self.name, c->node);
    strcpy(setup.self.domain, c->domain);
    tck_status_t status = peers_new(&setup, &agent->peers, err);
    if (status != TCK_OK && setup.port != c->net_port) {
        log_warn("port %u cannot be had again, another one is taken: %s", setup.port, err->text);
        setup.port = 0;
        status = peers_new(&setup, &agent->peers, err);
    }
    if (status == TCK_OK) {
        keep_port(agent);
    }
    return status;
}
