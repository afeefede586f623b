/* SPDX-License-Identifier: Apache-2.0
 * Sessions with other agents: accepting and opening connections, running the handshake, pairing control and bulk, and
 * carrying messages in parts.
 *
 * The agent with the smaller id connects. The other one does so, too, after a while, in case the first does not know it
 * yet; of two sessions that are being made at once, the one opened by the smaller id survives. */
#include "base/clock.h"
#include "base/log.h"
#include "tiers/peer_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Times timeout_ms: between two attempts to return from a direct session to one that is relayed. */
#define RELAY_BACK_TIMES 20

/* ---- sessions ---- */

static bool we_connect_first(const struct peer *peer)
{
    return peer->peers->self.agent_id < peer->node.agent_id;
}

static void plan_connect(struct peer *peer, uint32_t delay_ms)
{
    uint64_t half = delay_ms / 2;

    peer->connect_at_ms = clock_ms() + half + peers_random() % (half + 1) + peer_yield_ms(peer);
}

static void back_off(struct peer *peer)
{
    plan_connect(peer, peer->backoff_ms);
    peer->backoff_ms = peer->backoff_ms > PEER_BACKOFF_MAX_MS / 2 ? PEER_BACKOFF_MAX_MS : peer->backoff_ms * 2;
}

/* After an attempt at this address (ADDRESS_NONE: the other agent's): the next one at once, the same one after a short
 * pause, or, once all were tried, the first one after a longer pause. */
static void plan_next(struct peer *peer, uint32_t tried)
{
    uint32_t next = addresses_next(&peer->addresses);

    if (tried == ADDRESS_NONE) {
        back_off(peer);
    } else if (peer->up != NULL || next == ADDRESS_NONE) {
        addresses_new_round(&peer->addresses);
        back_off(peer);
    } else if (next == tried) {
        plan_connect(peer, PEER_BACKOFF_MIN_MS);
    } else {
        peer->connect_at_ms = clock_ms();
    }
}

/* After a session. If its address has become silent, there is no reason to wait before the next one is tried. */
static void plan_again(struct peer *peer)
{
    struct peer_addresses *a = &peer->addresses;
    bool silent = a->count > 1 && a->in_use != ADDRESS_NONE && a->of[a->in_use].failed;

    a->in_use = ADDRESS_NONE;
    addresses_first_round(a);
    peer->backoff_ms = PEER_BACKOFF_MIN_MS;
    if (silent) {
        plan_connect(peer, 0);
    } else {
        back_off(peer);
    }
}

/* Many nodes may have lost the same agent, so each returns at another time. */
void session_plan_move_back(struct peer *peer)
{
    uint64_t least_ms = (uint64_t)RELAY_BACK_TIMES * peer->peers->setup.timeout_ms;

    if (peer->via != 0) {
        peer->relay_back_ms = clock_ms() + least_ms + peers_random() % (least_ms + 1);
    }
}

/* After an attempt through another agent. That may still be waiting for its own session with the peer. */
static void plan_after_relay(struct peer *peer, bool ours)
{
    session_plan_move_back(peer);
    plan_connect(peer, PEER_BACKOFF_MIN_MS);
    peer->relay_failed = peer->relay_failed || (ours && peer->connect_at_ms >= peer->relay_until_ms);
}

/* The relay has reported that it does not reach the peer, which may have died and be restarted. Agents wait for the
 * relay to reach the peer again, lest all of them connect directly at the same time. A peer counts as lost after
 * timeout_ms or later, so half of the time is left for a direct session. */
static void await_relay(struct peer *peer)
{
    peer->relay_until_ms = clock_ms() + peer->peers->setup.timeout_ms / 2;
}

static struct session *session_new(struct peer *peer, uint64_t id, bool ours)
{
    struct session *session = calloc(1, sizeof(*session));

    if (session == NULL) {
        return NULL;
    }
    session->peer = peer;
    session->id = id;
    session->ours = ours;
    session->deadline_ms = clock_ms() + peer->peers->setup.timeout_ms;
    return session;
}

static void session_free(struct session *session)
{
    channel_free(session->control);
    channel_free(session->bulk);
    free(session->assembly);
    free(session);
}

void session_end(struct session *session, tck_status_t code, const char *why, bool quiet)
{
    struct peer *peer = session->peer;
    struct peers *peers = peer->peers;

    if (peer->making == session) {
        uint32_t tried = session->ours ? peer_number_of(peer, session->at) : ADDRESS_NONE;
        bool relayed = session->relayed, ours = session->ours;
        peer->making = NULL;
        session_free(session);
        if (relayed) {
            plan_after_relay(peer, ours);
        } else {
            plan_next(peer, tried);
        }
        return;
    }
    peer->up = NULL;
    plan_again(peer);
    if (session->relayed && session->control->cut) {
        await_relay(peer);
    }
    log_info("session with node %s ends: %s", peer->node.name, why);
    session_free(session);
    transfers_fail(peer, code, why);
    measures_fail(peer, code, why);
    if (!quiet) {
        peers->setup.down(peers->setup.ctx, peer, why);
    }
}

static void note_address(struct session *session)
{
    struct peer *peer = session->peer;
    const char *at;

    peer_set_node(peer, &session->control->auth.node);
    addresses_first_round(&peer->addresses);
    peer->addresses.in_use = ADDRESS_NONE;
    if (session->relayed) {
        check_stop(peer);
        addresses_forget(&peer->addresses);
        return;
    }
    at = session->ours ? session->at : link_remote(session->control->conn);
    peer->addresses.in_use = peer_number_of(peer, at);
    peer_address_answered(peer, at);
    check_plan(peer, clock_ms());
}

static void session_up(struct session *session)
{
    struct peer *peer = session->peer;
    struct peers *peers = peer->peers;

    if (peer->up != NULL) {
        session_end(peer->up, TCK_ERR_UNREACHABLE, "the agent made a new session", false);
    }
    if (peer->making != session) {
        return; /* ended in the callback of down */
    }
    peer->making = NULL;
    peer->up = session;
    peer->trouble[0] = '\0';
    note_address(session);
    peer->stale = false;
    peer->backoff_ms = PEER_BACKOFF_MIN_MS;
    session->heard_ms = clock_ms();
    peer->relay_failed = false;
    session_plan_move_back(peer);
    log_info("session with node %s at %s%s", peer->node.name, peer_address(peer),
             session->relayed ? ", through another node" : "");
    session_beat(peer, session->heard_ms);
    peers->setup.up(peers->setup.ctx, peer);
}

/* ---- connecting ---- */

static tck_status_t open_channel(struct session *session, enum wire_role role, struct error *err)
{
    struct channel *channel = channel_open(session->peer, session->at, role, session->id, err);

    if (channel == NULL) {
        return err->code;
    }
    channel->session = session;
    *(role == WIRE_CONTROL ? &session->control : &session->bulk) = channel;
    return TCK_OK;
}

/* A relayed session exists, but copies need a direct one. */
static void log_undirect(const struct peer *peer, const char *at, const char *why)
{
    if (peer_lacks_direct(peer) && peers_may_complain(peer->peers)) {
        log_warn("no copies are exchanged with node %s before there is a direct session with it, at %s: %s; check "
                 "net_device and net_address on both nodes",
                 peer->node.name, at, why);
    }
}

static void give_up_making(struct session *session, const char *why)
{
    struct peer *peer = session->peer;

    bool again = false;

    if (session->relayed) { /* says nothing of the agent's own address */
        log_debug("no session with node %s through another node: %s", peer->node.name, why);
        session_end(session, TCK_ERR_UNREACHABLE, why, true);
        return;
    }
    snprintf(peer->trouble, sizeof(peer->trouble), "%s", why);
    if (peer->up != NULL) {
        log_undirect(peer, session->at, why);
        peer_address_failed(peer, session->at, why); /* the agent is alive, so it is not being restarted */
    } else {
        again = peer_address_refused(peer, session->at);
    }
    if (!again && !peer_lacks_direct(peer) && peers_may_complain(peer->peers)) {
        log_warn("no session with node %s at %s: %s", peer->node.name, session->at, why);
    }
    session_end(session, TCK_ERR_UNREACHABLE, why, true);
}

void session_silent(struct session *session, tck_status_t code, const char *why)
{
    struct peer *peer = session->peer;
    uint32_t used = peer->addresses.in_use;

    if (session == peer->making && session->ours && !session->relayed) {
        log_undirect(peer, session->at, why);
        peer_address_failed(peer, session->at, why);
    } else if (session == peer->up && used != ADDRESS_NONE) {
        peer_address_failed(peer, peer->list.of[used], why);
    }
    session_end(session, code, why, session == peer->making);
}

static void connect_to(struct peer *peer, uint32_t number)
{
    struct error err;
    struct session *session = session_new(peer, peers_random(), true);

    if (session == NULL) {
        back_off(peer);
        return;
    }
    memcpy(session->at, peer->list.of[number], sizeof(session->at));
    session->deadline_ms = clock_ms() + peer_try_ms(peer);
    addresses_try(&peer->addresses, number, clock_ms());
    peer->making = session;
    if (open_channel(session, WIRE_CONTROL, &err) != TCK_OK) {
        give_up_making(session, err.text);
    }
}

/* The agent that relays messages to this peer, if there is a session with it. */
static const struct peer *relay_for(const struct peer *peer)
{
    const struct peer *relay = peers_find(peer->peers, peer->via);

    return relay != NULL && relay->up != NULL && !relay->up->relayed ? relay : NULL;
}

static void connect_relayed(struct peer *peer, const struct peer *relay)
{
    struct error err;
    struct session *session = session_new(peer, peers_random(), true);

    if (session == NULL) {
        back_off(peer);
        return;
    }
    session->relayed = true;
    session->deadline_ms = clock_ms() + peer->peers->setup.timeout_ms / 2;
    peer->making = session;
    session->control = channel_open_relayed(peer, relay, session->id, &err);
    if (session->control == NULL) {
        give_up_making(session, err.text);
    } else {
        session->control->session = session;
    }
}

void session_connect(struct peer *peer)
{
    const struct peer *relay = relay_for(peer);

    if (!peer_wants_direct(peer) && !peer->relay_failed && relay != NULL) {
        connect_relayed(peer, relay);
        return;
    }
    if (!peer_wants_direct(peer) && !peer->relay_failed && clock_ms() < peer->relay_until_ms) {
        return; /* the next tick looks again */
    }
    peer->relay_failed = false;
    if (addresses_next(&peer->addresses) == ADDRESS_NONE) {
        addresses_new_round(&peer->addresses);
    }
    connect_to(peer, addresses_next(&peer->addresses));
}

void session_move_back(struct peer *peer, uint64_t now_ms)
{
    const struct peer *relay = relay_for(peer);

    if (we_connect_first(peer) && relay != NULL && now_ms >= peer->relay_back_ms && peer->transfer_count == 0) {
        log_info("node %s: messages are sent through node %s again", peer->node.name, relay->node.name);
        connect_relayed(peer, relay);
    }
}

void session_move(struct peer *peer, uint32_t number)
{
    log_info("node %s: its address %s has been answering for %u s, so the session returns to it", peer->node.name,
             peer->list.of[number], ADDRESS_HEALTHY_MS / 1000);
    connect_to(peer, number);
}

/* The other agent may still refuse the session, as it may close a direct one instead of accepting its bulk connection.
 * So this one is up once the other agent has sent something. */
static void greet(struct session *session)
{
    if (session_greet(session) != TCK_OK) {
        give_up_making(session, "it is not reached through another node any more");
    }
}

/* A connection that we opened is authenticated. */
static void connected(struct channel *channel)
{
    struct session *session = channel->session;
    struct error err;

    if (channel->auth.node.agent_id != session->peer->node.agent_id) {
        give_up_making(session, "another agent answers there");
    } else if (session->relayed) {
        greet(session);
    } else if (channel->auth.role == WIRE_BULK) {
        session_up(session);
    } else if (open_channel(session, WIRE_BULK, &err) != TCK_OK) {
        give_up_making(session, err.text);
    }
}

/* ---- accepting ---- */

/* Drops our attempt in favour of a session that the other agent begins; false if ours has priority. A direct one has
 * priority over one that is relayed. */
static bool make_way(struct peer *peer, bool relayed)
{
    if (peer->making == NULL) {
        return true;
    }
    if (peer->making->ours && (peer->making->relayed == relayed ? we_connect_first(peer) : !peer->making->relayed)) {
        return false;
    }
    session_end(peer->making, TCK_ERR_UNREACHABLE, "the agent made a new session", true);
    return true;
}

/* The other agent wants to return to a relayed session, and does not know that this one needs or wants a direct one. */
static bool keeps_direct(const struct peer *peer)
{
    return peer->up != NULL && !peer->up->relayed && peer->wanted &&
           (peer_wants_direct(peer) || peer->transfer_count > 0);
}

static bool join_control(struct channel *channel)
{
    struct peers *peers = channel->peers;
    struct peer *peer = peers_find(peers, channel->auth.node.agent_id);
    struct session *session;

    if (peer == NULL) {
        peer = peers_add(peers, &channel->auth.node);
    }
    if (peer == NULL || (channel->conn == NULL && keeps_direct(peer)) || !make_way(peer, channel->conn == NULL)) {
        return false;
    }
    session = session_new(peer, channel->auth.session, false);
    if (session == NULL) {
        return false;
    }
    peer->making = session;
    session->relayed = channel->conn == NULL;
    session->control = channel;
    channel->session = session;
    return true;
}

static bool join_bulk(struct channel *channel)
{
    struct peer *peer = peers_find(channel->peers, channel->auth.node.agent_id);
    struct session *session = peer == NULL ? NULL : peer->making;

    if (session == NULL || session->ours || session->id != channel->auth.session || session->bulk != NULL) {
        return false;
    }
    session->bulk = channel;
    channel->session = session;
    return true;
}

/* A stranger has authenticated. */
static void introduced(struct channel *channel)
{
    bool relayed = channel->conn == NULL;
    bool as_named = !relayed || (channel->far == channel->auth.node.agent_id && channel->auth.role == WIRE_CONTROL);
    bool joined = as_named && (channel->auth.role == WIRE_CONTROL ? join_control(channel) : join_bulk(channel));

    channel_introduced(channel->peers, channel);
    if (!joined) {
        channel_free(channel);
    }
}

/* ---- the handshake's messages ---- */

static void handshake_failed(struct channel *channel, const struct error *err)
{
    if (channel->session != NULL) {
        give_up_making(channel->session, err->text);
        return;
    }
    if (peers_may_complain(channel->peers)) {
        log_warn("a connection is refused: %s", err->text);
    }
    if (err->code != TCK_ERR_DENIED) {
        channel_drop_stranger(channel); /* else its deadline drops it: the answer must still be sent */
    }
}

static void handshake_message(struct channel *channel, const void *data, size_t len)
{
    struct writer answer = writer_new(WIRE_HANDSHAKE_MAX);
    struct error err;
    tck_status_t status;

    if (channel->auth.awaits == AUTH_FAILED) {
        return;
    }
    status = auth_take(&channel->auth, data, len, &answer, &err);
    if (answer.len > 0 && !answer.failed && channel_send(channel, answer.data, answer.len) != TCK_OK &&
        status == TCK_OK) {
        status = error_set(&err, TCK_ERR_UNREACHABLE, "the connection broke during the handshake");
    }
    writer_free(&answer);
    if (status != TCK_OK) {
        handshake_failed(channel, &err);
    } else if (channel->auth.awaits == AUTH_DONE && channel->session == NULL) {
        introduced(channel);
    } else if (channel->auth.awaits == AUTH_DONE) {
        connected(channel);
    }
}

/* ---- a session's messages ---- */

static bool is_complete(const struct session *session)
{
    bool greeted = session->control != NULL && session->control->auth.awaits == AUTH_DONE;

    return greeted && (session->relayed || (session->bulk != NULL && session->bulk->auth.awaits == AUTH_DONE));
}

static void end_malformed(struct session *session, tck_status_t status)
{
    struct peer *peer = session->peer;
    const char *why = status == TCK_ERR_NOMEM ? "no memory for a message" : "malformed message";

    log_warn("node %s: %s", peer->node.name, why);
    session_end(session, TCK_ERR_UNREACHABLE, why, false);
}

static void established_message(struct channel *channel, const void *data, size_t len)
{
    struct session *session = channel->session;
    struct peer *peer = session->peer;
    struct wire_part part;
    tck_status_t status;

    if (channel != session->control || !is_complete(session) || wire_part_decode(data, len, &part) != TCK_OK) {
        end_malformed(session, TCK_ERR_PROTO);
        return;
    }
    if (peer->making == session) {
        session_up(session);
        if (peer->up != session) {
            return; /* ended in a callback */
        }
    }
    session->heard_ms = clock_ms();
    status = session_handle_fragment(session, &part);
    if (status != TCK_OK && peer->up == session) {
        end_malformed(session, status);
    }
}

static void channel_message(struct channel *channel, const void *data, size_t len)
{
    if (channel->refused) {
        return;
    }
    if (channel->checks != NULL) {
        check_message(channel, data, len);
    } else if (channel->auth.awaits == AUTH_DONE && channel->session != NULL) {
        established_message(channel, data, len);
    } else {
        handshake_message(channel, data, len);
    }
}

void session_message(void *ctx, struct link_conn *conn, const void *data, size_t len)
{
    (void)ctx;
    channel_message(link_user(conn), data, len);
}

static void channel_down(struct channel *channel, const char *why)
{
    struct session *session = channel->session;

    if (channel->checks != NULL) {
        check_broke(channel, why);
    } else if (session == NULL) {
        channel_drop_stranger(channel);
    } else if (session->peer->making == session && session->ours) {
        give_up_making(session, why);
    } else {
        session_end(session, TCK_ERR_UNREACHABLE, why, false);
    }
}

void session_conn_down(void *ctx, struct link_conn *conn, const char *why)
{
    (void)ctx;
    channel_down(link_user(conn), why);
}

tck_status_t session_relayed(struct peer *from, const void *data, size_t len)
{
    struct wire_relay m;
    struct channel *channel;

    if (wire_relay_decode(data, len, &m) != TCK_OK) {
        return TCK_ERR_PROTO;
    }
    if (m.to != from->peers->self.agent_id) {
        if (m.from != from->node.agent_id) {
            return TCK_ERR_PROTO;
        }
        relay_pass_on(from, &m);
        return TCK_OK;
    }
    channel = relay_channel(from, &m);
    if (channel == NULL) {
        relay_refuse(from, &m);
    } else if (m.ended) {
        channel->cut = true;
        channel_down(channel, "it is not reached through another node any more");
    } else {
        channel_message(channel, m.data, m.len);
    }
    return TCK_OK;
}
