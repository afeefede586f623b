/* SPDX-License-Identifier: Apache-2.0
 * Messages of a session: splitting them into parts, putting them together again, and handing them on. */
#include "base/log.h"
#include "tiers/peer_internal.h"

#include <stdlib.h>
#include <string.h>

#define BEAT_MAX 1024

/* ---- sending ---- */

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
            peer->stale = peer->stale || part.offset > 0; /* half a message is out: the next tick ends the session */
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
    uint8_t payload[BEAT_MAX];
    size_t len = setup->beat(setup->ctx, peer, payload, sizeof(payload));

    peer->up->beat_ms = now_ms;
    if (session_send(peer, WIRE_BEAT, 0, payload, len < BEAT_MAX ? len : BEAT_MAX) != TCK_OK) {
        log_debug("no heartbeat to node %s: its connection is down", peer->node.name);
    }
}

/* ---- receiving ---- */

static tck_status_t dispatch(struct peer *peer, const struct wire_part *whole)
{
    const struct peers_setup *setup = &peer->peers->setup;

    if (whole->kind == WIRE_BEAT) {
        if (whole->len > 0) {
            setup->beat_got(setup->ctx, peer, whole->data, whole->len);
        }
        return TCK_OK;
    }
    if (whole->kind == WIRE_MESSAGE) {
        setup->message(setup->ctx, peer, whole->type, whole->data, whole->len);
        return TCK_OK;
    }
    return transfer_message(peer, whole->kind, whole->data, whole->len);
}

/* Adds a part. TCK_OK with assembled == total: first and assembly are whole. */
static tck_status_t assemble(struct session *session, const struct wire_part *part)
{
    struct wire_part *first = &session->first;

    if (part->offset == 0 && session->assembly == NULL) {
        session->assembly = malloc(part->total);
        if (session->assembly == NULL) {
            return TCK_ERR_NOMEM;
        }
        *first = *part;
        session->assembled = 0;
    }
    if (session->assembly == NULL || part->kind != first->kind || part->type != first->type ||
        part->total != first->total || part->offset != session->assembled) {
        return TCK_ERR_PROTO;
    }
    memcpy(session->assembly + part->offset, part->data, part->len);
    session->assembled += (uint32_t)part->len;
    return TCK_OK;
}

tck_status_t session_take_part(struct session *session, const struct wire_part *part)
{
    struct peer *peer = session->peer;
    struct wire_part whole;
    uint8_t *assembly;
    tck_status_t status;

    if (part->len == part->total && session->assembly == NULL) {
        return dispatch(peer, part);
    }
    status = assemble(session, part);
    if (status != TCK_OK || session->assembled < session->first.total) {
        return status;
    }
    assembly = session->assembly;
    whole = session->first;
    whole.data = assembly;
    whole.len = whole.total;
    session->assembly = NULL;
    status = dispatch(peer, &whole);
    free(assembly);
    return status;
}
