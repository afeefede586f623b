/* SPDX-License-Identifier: Apache-2.0
 * What is known of each address of a peer. An address that the session does not use is checked now and then, so that a
 * network that has failed is noticed before it is needed, and one that works again may be used again. A check is the
 * first half of a handshake: the other agent proves that it knows the secret, then the connection is closed. */
#include "base/clock.h"
#include "base/log.h"
#include "tiers/peer_internal.h"

#include <stdio.h>
#include <string.h>

#define CHECK_AGAIN_MS 2000 /* more than a session needs to notice that the agent has died */

uint32_t peer_try_ms(const struct peer *peer)
{
    const struct peers_setup *setup = &peer->peers->setup;

    return addresses_limit_ms(&peer->addresses, setup->timeout_ms, setup->round_ms);
}

bool peer_address_refused(struct peer *peer, const char *at)
{
    uint32_t number = peer_number_of(peer, at);

    if (number == ADDRESS_NONE) {
        return false;
    }
    addresses_refused(&peer->addresses, number, clock_ms(), peer_try_ms(peer));
    return !peer->addresses.of[number].tried;
}

void peer_address_failed(struct peer *peer, const char *at, const char *why)
{
    uint32_t number = peer_number_of(peer, at);

    if (number == ADDRESS_NONE || !addresses_failed(&peer->addresses, number, clock_ms())) {
        return;
    }
    if (peer->addresses.count > 1) {
        log_warn("node %s does not answer at its address %s: %s", peer->node.name, peer->list.of[number], why);
    }
}

void peer_address_answered(struct peer *peer, const char *at)
{
    uint32_t number = peer_number_of(peer, at);

    if (number == ADDRESS_NONE || !addresses_answered(&peer->addresses, number, clock_ms())) {
        return;
    }
    if (peer->addresses.count > 1) {
        log_info("node %s answers again at its address %s", peer->node.name, peer->list.of[number]);
    }
}

const char *peer_address(const struct peer *peer)
{
    return peer->addresses.in_use != ADDRESS_NONE ? peer->list.of[peer->addresses.in_use] : peer->node.address;
}

size_t peer_reach(const struct peer *peer, struct peer_reach out[ADDRESSES_MAX])
{
    for (uint32_t i = 0; i < peer->addresses.count; i++) {
        out[i] = (struct peer_reach){
            .address = peer->list.of[i], .in_use = i == peer->addresses.in_use, .failed = peer->addresses.of[i].failed};
    }
    return peer->addresses.count;
}

void check_stop(struct peer *peer)
{
    channel_free(peer->check);
    peer->check = NULL;
}

static void fail(struct peer *peer, const char *why)
{
    check_stop(peer);
    peer_address_failed(peer, peer->check_at, why);
}

static void begin(struct peer *peer, uint32_t number, uint64_t now_ms)
{
    struct error err;

    memcpy(peer->check_at, peer->list.of[number], sizeof(peer->check_at));
    peer->check_deadline_ms = now_ms + peer->peers->setup.timeout_ms;
    peer->check = channel_open(peer, peer->check_at, WIRE_CONTROL, 1, &err);
    if (peer->check == NULL) {
        fail(peer, err.text);
    } else {
        peer->check->checks = peer;
    }
}

void check_plan(struct peer *peer, uint64_t now_ms)
{
    peer->check_broke = false;
    if (peer->addresses.count > 1) {
        peer->check_at_ms = now_ms + peers_random() % ADDRESS_CHECK_MS;
    }
}

void check_tick(struct peer *peer, uint64_t now_ms)
{
    uint32_t due = now_ms < peer->check_at_ms ? ADDRESS_NONE : addresses_to_check(&peer->addresses, now_ms);

    if (peer->check != NULL && now_ms >= peer->check_deadline_ms) {
        fail(peer, "no answer");
    } else if (peer->check == NULL && peer->up != NULL && due != ADDRESS_NONE) {
        begin(peer, due, now_ms);
    }
}

void check_message(struct channel *channel, const void *data, size_t len)
{
    struct peer *peer = channel->checks;
    struct writer ignored = writer_new(WIRE_HANDSHAKE_MAX);
    struct error err;
    tck_status_t status = auth_take(&channel->auth, data, len, &ignored, &err);
    bool other = channel->auth.node.agent_id != peer->node.agent_id;

    writer_free(&ignored);
    if (status != TCK_OK) {
        fail(peer, err.text);
    } else if (other) {
        fail(peer, "another agent answers there");
    } else {
        check_stop(peer);
        peer->check_broke = false;
        peer_address_answered(peer, peer->check_at);
    }
}

/* Most likely the other agent has died just now, and the session is about to end, too. If it does not, the address
 * fails by the second check. */
void check_broke(struct channel *channel, const char *why)
{
    struct peer *peer = channel->checks;

    if (peer->check_broke) {
        peer->check_broke = false;
        fail(peer, why);
        return;
    }
    peer->check_broke = true;
    peer->check_at_ms = clock_ms() + CHECK_AGAIN_MS;
    check_stop(peer);
}
