/* SPDX-License-Identifier: Apache-2.0
 * The set of peers, and the clock that drives them: heartbeats, silence, reconnects, deadlines. */
#include "base/clock.h"
#include "base/log.h"
#include "tiers/peer.h"
#include "tiers/peer_transfer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MIN_MS 10
#define TICK_MAX_MS 100

/* Removes it from the list; a later sweep frees it. */
static void leave(struct peers *peers, struct peer *peer)
{
    size_t i = 0;

    check_stop(peer);
    while (peers->list[i] != peer) {
        i++;
    }
    memmove(&peers->list[i], &peers->list[i + 1], (peers->count - i - 1) * sizeof(struct peer *));
    peers->count--;
    peer->next = peers->leaving;
    peers->leaving = peer;
}

static void sweep_leaving(struct peers *peers)
{
    struct peer **at = &peers->leaving;

    while (*at != NULL) {
        struct peer *peer = *at;

        if (peer->transfer_count > 0) {
            at = &peer->next;
            continue;
        }
        *at = peer->next;
        free(peer);
    }
}

/* ---- the clock ---- */

static void tick_session(struct peer *peer, uint64_t now_ms)
{
    const struct peers_setup *setup = &peer->peers->setup;

    if (channel_is_cut(peer->up->control)) {
        session_end(peer->up, TCK_ERR_UNREACHABLE, "the node through which it was reached is down", false);
    } else if (peer->stale) {
        peer->stale = false;
        session_end(peer->up, TCK_ERR_UNREACHABLE, "the agent has a new address or lost a message", false);
    } else if (now_ms >= peer->up->heard_ms + setup->timeout_ms) {
        log_warn("node %s has been silent for %u ms", peer->node.name, setup->timeout_ms);
        session_silent(peer->up, TCK_ERR_UNREACHABLE, "no heartbeat");
    } else if (now_ms >= peer->up->beat_ms + setup->heartbeat_ms) {
        session_beat(peer, now_ms);
    }
}

/* A session that moves fails the transfers with that peer, so it moves between them. */
static void tick_addresses(struct peer *peer, uint64_t now_ms)
{
    bool ours = peer->peers->self.agent_id < peer->node.agent_id;
    uint32_t better = addresses_better(&peer->addresses, now_ms);

    if (peer->up != NULL && peer->up->relayed) {
        check_stop(peer);
        return;
    }
    check_tick(peer, now_ms);
    if (ours && better != ADDRESS_NONE && peer->up != NULL && peer->making == NULL && peer->transfer_count == 0) {
        session_move(peer, better);
    }
}

static void tick_peer(struct peer *peer, uint64_t now_ms)
{
    if (peer->making != NULL && now_ms >= peer->making->deadline_ms) {
        session_silent(peer->making, TCK_ERR_UNREACHABLE, "no answer");
    } else if (peer->making != NULL && peer->making->control != NULL && channel_is_cut(peer->making->control)) {
        session_end(peer->making, TCK_ERR_UNREACHABLE, "the node through which it was reached is down", true);
    }
    if (peer->up != NULL && peer->up->relayed && peer->making == NULL && peer->wanted && peer_wants_direct(peer) &&
        now_ms >= peer->connect_at_ms) {
        session_connect(peer);
    }
    tick_addresses(peer, now_ms);
    if (peer->up != NULL && !peer->up->relayed && peer->making == NULL && !peer_wants_direct(peer)) {
        session_move_back(peer, now_ms);
    }
    if (peer->up != NULL) {
        tick_session(peer, now_ms);
    } else if (peer->wanted && peer->making == NULL && now_ms >= peer->connect_at_ms) {
        session_connect(peer);
    } else if (!peer->wanted && peer->making == NULL) {
        leave(peer->peers, peer);
    }
}

/* If this thread itself was stalled, messages may still be unread, so that time does not count as silence. */
static void discount_pause(struct peers *peers, uint64_t now_ms)
{
    uint64_t late_ms = now_ms - peers->ticked_ms;

    peers->ticked_ms = now_ms;
    if (late_ms < 2 * peers->tick_ms) {
        return;
    }
    for (size_t i = 0; i < peers->count; i++) {
        if (peers->list[i]->up != NULL) {
            peers->list[i]->up->heard_ms += late_ms - peers->tick_ms;
        }
    }
}

static void expire_measures(struct peers *peers, uint64_t now_ms)
{
    struct peer *stuck = measures_expire(peers, now_ms);

    if (stuck != NULL) {
        log_warn("node %s: a measurement makes no progress, the session ends", stuck->node.name);
        session_silent(stuck->up, TCK_ERR_TIMEDOUT, "a measurement made no progress");
    }
}

static void on_tick(void *ctx)
{
    struct peers *peers = ctx;
    uint64_t now_ms = clock_ms();

    discount_pause(peers, now_ms);
    strangers_expire(peers, now_ms);
    transfers_expire(peers, now_ms);
    expire_measures(peers, now_ms);
    /* A callback may remove peers; one that moves to an index already passed waits for the next tick. */
    for (size_t i = 0; i < peers->count; i++) {
        tick_peer(peers->list[i], now_ms);
    }
}

static bool on_poll(void *ctx)
{
    struct peers *peers = ctx;

    bool worked = transfers_finish(peers);

    measures_finish(peers);
    sweep_leaving(peers);
    return worked;
}

/* ---- chunks ---- */

static void *on_chunk(void *ctx, struct link_conn *conn, const void *header, size_t header_len, size_t len)
{
    return measure_owns_chunk(ctx, header, header_len) ? measure_chunk(ctx, conn, header, header_len, len)
                                                       : transfer_chunk(ctx, conn, header, header_len, len);
}

static void on_chunk_done(void *ctx, struct link_conn *conn, const void *header, size_t header_len, bool ok)
{
    if (measure_owns_chunk(ctx, header, header_len)) {
        measure_chunk_done(ctx, header, header_len, ok);
    } else {
        transfer_chunk_done(ctx, conn, header, header_len, ok);
    }
}

/* ---- interface ---- */

static tck_status_t open_link(struct peers *peers, struct error *err)
{
    struct link_setup setup = {.loop = peers->setup.loop,
                               .device = peers->setup.device,
                               .address = peers->setup.address,
                               .port = peers->setup.port,
                               .tos = peers->setup.tos,
                               .ctx = peers,
                               .accepted = channel_accepted,
                               .message = session_message,
                               .chunk = on_chunk,
                               .chunk_done = on_chunk_done,
                               .down = session_conn_down};
    tck_status_t status = link_new(&setup, &peers->link, err);

    if (status == TCK_OK) {
        snprintf(peers->self.address, sizeof(peers->self.address), "%s", link_address(peers->link));
    }
    return status;
}

static tck_status_t start_clock(struct peers *peers, struct error *err)
{
    struct loop *loop = peers->setup.loop;
    uint64_t tick_ms = peers->setup.heartbeat_ms / 4;

    if (loop_timer_add(loop, on_tick, peers, &peers->tick) != TCK_OK) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the peers' timer");
    }
    if (loop_poll_add(loop, on_poll, peers) != TCK_OK) {
        loop_timer_remove(peers->tick);
        return error_set(err, TCK_ERR_NOMEM, "no memory for the peers' poll function");
    }
    tick_ms = tick_ms < TICK_MIN_MS ? TICK_MIN_MS : tick_ms;
    peers->tick_ms = tick_ms > TICK_MAX_MS ? TICK_MAX_MS : tick_ms;
    peers->ticked_ms = clock_ms();
    loop_timer_set(peers->tick, peers->tick_ms, true);
    return TCK_OK;
}

tck_status_t peers_new(const struct peers_setup *setup, struct peers **out, struct error *err)
{
    struct peers *peers = calloc(1, sizeof(*peers));
    tck_status_t status;

    if (peers == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for peers");
    }
    peers->setup = *setup;
    peers->self = setup->self;
    peers->auth = (struct auth_self){.job = setup->job, .node = &peers->self, .secret = &peers->setup.secret};
    peers->transfers_end = &peers->transfers;
    peers->relayed = session_relayed;
    status = open_link(peers, err);
    if (status != TCK_OK) {
        goto free_peers;
    }
    status = start_clock(peers, err);
    if (status != TCK_OK) {
        goto free_link;
    }
    *out = peers;
    return TCK_OK;

free_link:
    link_free(peers->link);
free_peers:
    secret_wipe(&peers->setup.secret);
    free(peers);
    return status;
}

static void end_sessions(struct peer *peer, tck_status_t code, const char *why)
{
    if (peer->making != NULL) {
        session_end(peer->making, code, why, true);
    }
    if (peer->up != NULL) {
        session_end(peer->up, code, why, true);
    }
}

void peers_free(struct peers *peers)
{
    if (peers == NULL) {
        return;
    }
    loop_timer_remove(peers->tick);
    loop_poll_remove(peers->setup.loop, on_poll, peers);
    strangers_close(peers);
    while (peers->count > 0) {
        peers_unwant(peers, peers->list[0]);
    }
    link_free(peers->link);
    transfers_join(peers);
    transfers_finish(peers);
    measures_finish(peers);
    sweep_leaving(peers);
    secret_wipe(&peers->setup.secret);
    free(peers->list);
    free(peers);
}

const struct node_info *peers_self(const struct peers *peers)
{
    return &peers->self;
}

void peers_resume(struct peers *peers)
{
    for (size_t i = 0; i < peers->count; i++) {
        transfers_pump(peers->list[i]);
    }
}

bool peers_are_listening(const struct peers *peers)
{
    return link_is_listening(peers->link);
}

tck_status_t peers_want(struct peers *peers, const struct node_info *node, struct peer **out, struct error *err)
{
    struct peer *peer = peers_find(peers, node->agent_id);

    if (node->agent_id == peers->self.agent_id) {
        return error_set(err, TCK_ERR_INVAL, "node %s has the same id as this agent", node->name);
    }
    if (peer == NULL) {
        peer = peers_add(peers, node);
        if (peer == NULL) {
            return error_set(err, TCK_ERR_NOMEM, "no memory for node %s", node->name);
        }
    }
    peer->stale = peer->up != NULL && strcmp(peer->node.address, node->address) != 0;
    peer_set_node(peer, node);
    if (!peer->wanted) {
        peer->wanted = true;
        peer->connect_at_ms = clock_ms() + peer_yield_ms(peer);
    }
    *out = peer;
    return TCK_OK;
}

/* If both agents want it, the one with the larger id leaves it to the other one to replace the session, for a while. */
static void want_direct(struct peer *peer, bool both)
{
    if (peer->up != NULL && peer->up->relayed) {
        peer->connect_at_ms = clock_ms() + (both ? peer_yield_ms(peer) : 0);
    }
}

tck_status_t peers_want_via(struct peers *peers, const struct node_info *node, uint64_t via, struct peer **out,
                            struct error *err)
{
    tck_status_t status = peers_want(peers, node, out, err);

    if (status == TCK_OK && (*out)->via != via) {
        (*out)->via = via;
        (*out)->relay_until_ms = clock_ms() + peers->setup.timeout_ms;
        session_plan_move_back(*out);
        if (via == 0) {
            want_direct(*out, true);
        }
    }
    return status;
}

tck_status_t peers_want_copies(struct peers *peers, const struct node_info *node, bool both, struct peer **out,
                               struct error *err)
{
    const struct peer *known = peers_find(peers, node->agent_id);
    bool alone = !both && (known == NULL || !known->wanted);
    tck_status_t status = peers_want(peers, node, out, err);

    if (status == TCK_OK && alone) {
        (*out)->connect_at_ms = clock_ms(); /* the other agent does not know that a session is needed */
    }
    if (status == TCK_OK && !((*out)->copies && both)) {
        (*out)->copies = true;
        want_direct(*out, both);
    }
    return status;
}

void peer_unwant_copies(struct peer *peer)
{
    peer->copies = false;
    if (peer->up != NULL && peer->up->relayed) {
        addresses_forget(&peer->addresses); /* no more attempts would show that they answer */
    }
}

void peers_unwant(struct peers *peers, struct peer *peer)
{
    peer->wanted = false;
    end_sessions(peer, TCK_ERR_CANCELED, "this agent is no longer needed");
    leave(peers, peer);
}

bool peer_is_wanted(const struct peer *peer)
{
    return peer->wanted;
}

bool peer_is_up(const struct peer *peer)
{
    return peer->up != NULL;
}

bool peer_takes_copies(const struct peer *peer)
{
    return peer->up != NULL && !peer->up->relayed;
}

const struct node_info *peer_relay(const struct peer *peer)
{
    bool relayed = peer->up != NULL && peer->up->relayed;
    const struct peer *relay = relayed ? peers_find(peer->peers, peer->up->control->relay) : NULL;

    return relay != NULL ? &relay->node : NULL;
}

bool peer_route(const struct peer *peer, struct link_route *out)
{
    if (!peer_takes_copies(peer)) {
        return false;
    }
    link_route(peer->up->bulk->conn, out);
    return true;
}

const char *peer_trouble(const struct peer *peer)
{
    return peer->up != NULL ? "" : peer->trouble;
}

const struct node_info *peer_node(const struct peer *peer)
{
    return &peer->node;
}

size_t peers_count(const struct peers *peers)
{
    return peers->count;
}

struct peer *peers_at(const struct peers *peers, size_t i)
{
    return peers->list[i];
}

tck_status_t peer_send(struct peer *peer, uint16_t type, const void *data, size_t len)
{
    return session_send(peer, WIRE_MESSAGE, type, data, len);
}
