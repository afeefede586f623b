/* SPDX-License-Identifier: Apache-2.0
 * Messages that come in parts: assembles them and passes them on. */
#include "tiers/peer_internal.h"

#include <stdlib.h>
#include <string.h>

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
    if (whole->kind == WIRE_RELAY) {
        return peer->up->relayed ? TCK_ERR_PROTO : peer->peers->relayed(peer, whole->data, whole->len);
    }
    if (peer->up->relayed && whole->kind <= WIRE_READY) {
        return TCK_ERR_PROTO; /* nothing that begins a transfer comes over a session that carries no copies */
    }
    if (whole->kind >= WIRE_MEASURE) {
        return peer->up->relayed ? TCK_ERR_PROTO : measure_handle_message(peer, whole->kind, whole->data, whole->len);
    }
    return transfer_handle_message(peer, whole->kind, whole->data, whole->len);
}

/* Adds a part. TCK_OK with assembled == total: the message is complete. */
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

tck_status_t session_handle_fragment(struct session *session, const struct wire_part *part)
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
