/* SPDX-License-Identifier: Apache-2.0
 * Sending over a session: messages, split into parts, and heartbeats. What is relayed is sent as messages to the agent
 * that relays it, whose own session is never relayed. */
#include "base/log.h"
#include "tiers/peer_internal.h"

typedef tck_status_t send_fn(const struct channel *channel, const void *data, size_t len);

static tck_status_t send_part(const struct session *session, const struct wire_part *part, send_fn *send)
{
    struct writer w = writer_new(LINK_MESSAGE_MAX);
    tck_status_t status = TCK_ERR_NOMEM;

    wire_part_encode(part, &w);
    if (!w.failed) {
        status = send(session->control, w.data, w.len);
    }
    writer_free(&w);
    return status;
}

static tck_status_t send_parts(struct peer *peer, struct wire_part part, size_t len, send_fn *send)
{
    if (peer->up == NULL) {
        return TCK_ERR_UNREACHABLE;
    }
    if (len > PEER_MESSAGE_MAX) {
        return TCK_ERR_INVAL;
    }
    part.total = (uint32_t)len;
    do {
        tck_status_t status;

        part.len = len - part.offset < WIRE_PART_BYTES ? len - part.offset : WIRE_PART_BYTES;
        status = send_part(peer->up, &part, send);
        if (status != TCK_OK) {
            peer->stale = peer->stale || part.offset > 0; /* half a message was sent: the next tick ends the session */
            return status;
        }
        part.offset += (uint32_t)part.len;
        part.data += part.len;
    } while (part.offset < len);
    return TCK_OK;
}

static tck_status_t send_direct(const struct channel *channel, const void *data, size_t len)
{
    return link_send(channel->conn, data, len);
}

/* The agent that relays the channel; NULL: not any more. */
static struct peer *relay_of(const struct channel *channel)
{
    struct peer *relay = peers_find(channel->peers, channel->relay);
    bool same = relay != NULL && relay->up != NULL && !relay->up->relayed && relay->up->id == channel->relay_session;

    return same ? relay : NULL;
}

static tck_status_t send_relayed(const struct channel *channel, const void *data, size_t len, bool ended)
{
    struct wire_relay m = {.to = channel->far,
                           .from = channel->peers->self.agent_id,
                           .session = channel->tunnel,
                           .ended = ended,
                           .data = data,
                           .len = len};
    struct peer *relay = relay_of(channel);
    struct writer w = writer_new(0);
    tck_status_t status = TCK_ERR_UNREACHABLE;

    wire_relay_encode(&m, &w);
    if (w.failed) {
        status = TCK_ERR_NOMEM;
    } else if (relay != NULL) {
        status = send_parts(relay, (struct wire_part){.kind = WIRE_RELAY, .data = w.data}, w.len, send_direct);
    }
    writer_free(&w);
    return status;
}

tck_status_t channel_send(const struct channel *channel, const void *data, size_t len)
{
    return channel->conn != NULL ? send_direct(channel, data, len) : send_relayed(channel, data, len, false);
}

bool channel_is_cut(const struct channel *channel)
{
    return channel->conn == NULL && relay_of(channel) == NULL;
}

void channel_end(const struct channel *channel)
{
    if (channel->conn == NULL && !channel->cut && send_relayed(channel, NULL, 0, true) != TCK_OK) {
        log_debug("the other end of a relayed session does not learn that it has ended");
    }
}

tck_status_t session_send(struct peer *peer, enum wire_kind kind, uint16_t type, const void *data, size_t len)
{
    return send_parts(peer, (struct wire_part){.kind = kind, .type = type, .data = data}, len, channel_send);
}

tck_status_t session_greet(const struct session *session)
{
    return send_part(session, &(struct wire_part){.kind = WIRE_BEAT}, channel_send);
}

void session_beat(struct peer *peer, uint64_t now_ms)
{
    const struct peers_setup *setup = &peer->peers->setup;
    uint8_t payload[PEER_BEAT_MAX];
    size_t len = setup->beat(setup->ctx, peer, payload, sizeof(payload));

    peer->up->beat_ms = now_ms;
    if (session_send(peer, WIRE_BEAT, 0, payload, len < PEER_BEAT_MAX ? len : PEER_BEAT_MAX) != TCK_OK) {
        log_debug("no heartbeat to node %s: its connection is down", peer->node.name);
    }
}
