/* SPDX-License-Identifier: Apache-2.0
 * Sending over a session: messages, split into parts, and heartbeats. */
#include "base/log.h"
#include "tiers/peer_internal.h"

static tck_status_t send_part(struct session *session, const struct wire_part *part)
{
    struct writer w = writer_new(LINK_MESSAGE_MAX);
    tck_status_t status = TCK_ERR_NOMEM;

    wire_part_encode(part, &w);
    if (!w.failed) {
        status = link_send(session->control->conn, w.data, w.len);
    }
    writer_free(&w);
    return status;
}

tck_status_t session_send(struct peer *peer, enum wire_kind kind, uint16_t type, const void *data, size_t len)
{
    struct wire_part part = {.kind = kind, .type = type, .data = data};

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
        status = send_part(peer->up, &part);
        if (status != TCK_OK) {
            peer->stale = peer->stale || part.offset > 0; /* half a message was sent: the next tick ends the session */
            return status;
        }
        part.offset += (uint32_t)part.len;
        part.data += part.len;
    } while (part.offset < len);
    return TCK_OK;
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
