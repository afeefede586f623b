/* SPDX-License-Identifier: Apache-2.0
 * Connections, and the strangers among them: accepted, but not authenticated yet. Their number and time are bounded. */
#include "base/clock.h"
#include "base/log.h"
#include "tiers/peer_internal.h"

#include <stdlib.h>

#define STRANGERS_MAX  256
#define STRANGER_MS    2000
#define COMPLAINTS_MAX 10 /* log lines about strangers in one window */
#define COMPLAINTS_MS  10000

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

struct channel *channel_new(struct peers *peers)
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
    }
    free(channel);
}

static void stranger_add(struct peers *peers, struct channel *channel)
{
    channel->deadline_ms = clock_ms() + STRANGER_MS;
    channel->next = peers->strangers;
    peers->strangers = channel;
    peers->stranger_count++;
}

void channel_introduced(struct peers *peers, struct channel *channel)
{
    struct channel **at = &peers->strangers;

    while (*at != channel) {
        at = &(*at)->next;
    }
    *at = channel->next;
    peers->stranger_count--;
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

void channel_accepted(void *ctx, struct link_conn *conn)
{
    struct peers *peers = ctx;
    struct channel *channel = peers->stranger_count < STRANGERS_MAX ? channel_new(peers) : NULL;

    if (channel == NULL) {
        if (peers_may_complain(peers)) {
            log_warn("a connection is refused: %zu others have not authenticated yet", peers->stranger_count);
        }
        link_close(conn);
        return;
    }
    channel->conn = conn;
    link_set_user(conn, channel);
    auth_accept(&channel->auth, &peers->auth);
    stranger_add(peers, channel);
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
