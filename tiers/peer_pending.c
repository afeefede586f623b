/* SPDX-License-Identifier: Apache-2.0
 * Connections, and the strangers among them: accepted, but not authenticated yet. Their number and time are bounded. */
#include "base/clock.h"
#include "base/log.h"
#include "tiers/peer_internal.h"

#include <stdlib.h>

#define STRANGERS_MAX  256
#define STRANGER_MS    2000
#define REFUSED_MAX    1024 /* that wait to be closed */
#define REFUSED_MS     100
#define COMPLAINTS_MAX 10 /* log lines about strangers in one window */
#define COMPLAINTS_MS  10000

uint64_t peers_random(void)
{
    uint64_t value;

    if (random_bytes(&value, sizeof(value)) != TCK_OK) {
        value = clock_ns(); /* this number only jitters retries and names sessions; the handshake has its own nonces */
    }
    return value;
}

bool peers_may_complain(struct peers *peers)
{
    uint64_t now_ms = clock_ms();

    if (now_ms - peers->complain_from_ms >= COMPLAINTS_MS) {
        if (peers->complaints > COMPLAINTS_MAX) {
            log_warn("%u more lines about connections were suppressed", peers->complaints - COMPLAINTS_MAX);
        }
        peers->complain_from_ms = now_ms;
        peers->complaints = 0;
    }
    return ++peers->complaints <= COMPLAINTS_MAX;
}

static struct channel *channel_new(struct peers *peers)
{
    struct channel *channel = calloc(1, sizeof(*channel));

    if (channel != NULL) {
        channel->peers = peers;
    }
    return channel;
}

void channel_free(struct channel *channel)
{
    if (channel == NULL) {
        return;
    }
    if (channel->conn != NULL) {
        link_set_user(channel->conn, NULL);
        link_close(channel->conn);
    } else if (channel->relay != 0) {
        channel_end(channel);
    }
    free(channel);
}

struct channel *channel_open(struct peer *peer, const char *at, enum wire_role role, uint64_t session,
                             struct error *err)
{
    struct channel *channel = channel_new(peer->peers);
    struct writer hello = writer_new(WIRE_HANDSHAKE_MAX);
    uint32_t number = peer_number_of(peer, at);
    tck_status_t status;

    if (channel == NULL) {
        error_set(err, TCK_ERR_NOMEM, "no memory for a connection");
        return NULL;
    }
    status = auth_connect(&channel->auth, &peer->peers->auth, role, session, &hello);
    if (status != TCK_OK) {
        error_set(err, status, "no memory for a handshake");
        goto free_channel;
    }
    status = link_connect(peer->peers->link, at, number == ADDRESS_NONE ? 0 : number, channel, &channel->conn, err);
    if (status != TCK_OK) {
        goto free_channel;
    }
    status = link_send(channel->conn, hello.data, hello.len);
    if (status != TCK_OK) {
        error_set(err, status, "send HELLO to %s", at);
        goto free_channel;
    }
    writer_free(&hello);
    return channel;

free_channel:
    channel_free(channel);
    writer_free(&hello);
    return NULL;
}

static struct channel *channel_new_relayed(struct peers *peers, const struct peer *relay, uint64_t far, uint64_t tunnel)
{
    struct channel *channel = channel_new(peers);

    if (channel != NULL) {
        channel->relay = relay->node.agent_id;
        channel->relay_session = relay->up->id;
        channel->far = far;
        channel->tunnel = tunnel;
    }
    return channel;
}

struct channel *channel_open_relayed(struct peer *peer, const struct peer *relay, uint64_t session, struct error *err)
{
    struct channel *channel = channel_new_relayed(peer->peers, relay, peer->node.agent_id, session);
    struct writer hello = writer_new(WIRE_HANDSHAKE_MAX);
    tck_status_t status = TCK_ERR_NOMEM;

    if (channel != NULL) {
        status = auth_connect(&channel->auth, &peer->peers->auth, WIRE_CONTROL, session, &hello);
    }
    if (status == TCK_OK) {
        status = channel_send(channel, hello.data, hello.len);
    }
    if (status != TCK_OK) {
        error_set(err, status, "send HELLO through node %s", relay->node.name);
        channel_free(channel);
        channel = NULL;
    }
    writer_free(&hello);
    return channel;
}

/* Those that are relayed do not count: the agent that relays them has authenticated. */
static bool counts(const struct channel *channel)
{
    return channel->conn != NULL && !channel->refused;
}

static void stranger_add(struct peers *peers, struct channel *channel, uint64_t for_ms)
{
    channel->deadline_ms = clock_ms() + for_ms;
    channel->next = peers->strangers;
    peers->strangers = channel;
    peers->stranger_count += counts(channel);
    peers->refused_count += channel->refused;
}

void channel_introduced(struct peers *peers, struct channel *channel)
{
    struct channel **at = &peers->strangers;

    while (*at != channel) {
        at = &(*at)->next;
    }
    *at = channel->next;
    peers->stranger_count -= counts(channel);
    peers->refused_count -= channel->refused;
}

void channel_drop_stranger(struct channel *channel)
{
    channel_introduced(channel->peers, channel);
    channel_free(channel);
}

void strangers_expire(struct peers *peers, uint64_t now_ms)
{
    struct channel *next;

    for (struct channel *channel = peers->strangers; channel != NULL; channel = next) {
        next = channel->next;
        if (now_ms >= channel->deadline_ms) {
            channel_drop_stranger(channel);
        }
    }
}

void strangers_close(struct peers *peers)
{
    while (peers->strangers != NULL) {
        channel_drop_stranger(peers->strangers); /* NOLINT(clang-analyzer-unix.Malloc): it unlinks what it frees */
    }
}

/* Closing a connection while UCX 1.13 is still answering it can abort the process: the event that the socket is
 * writable may arrive when the next connection already has the same descriptor. So the connection is closed a little
 * later. */
static struct channel *refuse(struct peers *peers)
{
    struct channel *channel = peers->refused_count < REFUSED_MAX ? channel_new(peers) : NULL;

    if (channel != NULL) {
        channel->refused = true;
    }
    if (peers_may_complain(peers)) {
        log_warn("a connection is refused: %zu others have not authenticated yet", peers->stranger_count);
    }
    return channel;
}

void channel_accepted(void *ctx, struct link_conn *conn)
{
    struct peers *peers = ctx;
    struct channel *channel = peers->stranger_count < STRANGERS_MAX ? channel_new(peers) : refuse(peers);

    if (channel == NULL) {
        if (peers->refused_count < REFUSED_MAX && peers_may_complain(peers)) {
            log_warn("a connection is refused: out of memory");
        }
        link_close(conn);
        return;
    }
    channel->conn = conn;
    link_set_user(conn, channel);
    auth_accept(&channel->auth, &peers->auth);
    stranger_add(peers, channel, channel->refused ? REFUSED_MS : STRANGER_MS);
}

struct channel *channel_accept_relayed(const struct peer *relay, uint64_t far, uint64_t tunnel)
{
    struct channel *channel = channel_new_relayed(relay->peers, relay, far, tunnel);

    if (channel != NULL) {
        auth_accept(&channel->auth, &relay->peers->auth);
        stranger_add(relay->peers, channel, STRANGER_MS);
    }
    return channel;
}

struct session *session_of_bulk(const struct link_conn *conn)
{
    struct channel *channel = link_user(conn);
    struct session *session = channel == NULL ? NULL : channel->session;

    if (session == NULL || session->peer->up != session || session->bulk != channel) {
        return NULL;
    }
    session->heard_ms = clock_ms();
    return session;
}
