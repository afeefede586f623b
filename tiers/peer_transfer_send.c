/* SPDX-License-Identifier: Apache-2.0
 * Outgoing messages about transfers. */
#include "base/log.h"
#include "tiers/peer_transfer.h"

#include <stdio.h>

void transfer_send(struct peer *peer, enum wire_kind kind, struct writer *w)
{
    if (w->failed) {
        log_warn("no memory for a message to node %s", peer->node.name);
    } else if (session_send(peer, kind, 0, w->data, w->len) != TCK_OK) {
        log_debug("a message to node %s is lost: it is down", peer->node.name);
    }
    writer_free(w);
}

void transfer_send_end(struct peer *peer, enum wire_kind kind, uint64_t to_token, tck_status_t code, const char *text)
{
    struct wire_end end = {.to_token = to_token, .error.code = code == TCK_OK ? TCK_ERR_CANCELED : code};
    struct writer w = writer_new(0);

    snprintf(end.error.text, sizeof(end.error.text), "%s", text);
    wire_end_encode(&end, &w);
    transfer_send(peer, kind, &w);
}

void transfer_send_ack(struct peer *peer, uint64_t to_token, struct hash128 root)
{
    struct writer w = writer_new(0);

    wire_ack_encode(&(struct wire_ack){.to_token = to_token, .root = root}, &w);
    transfer_send(peer, WIRE_ACK, &w);
}

void transfer_send_grant(const struct transfer *transfer)
{
    struct writer w = writer_new(0);

    wire_grant_encode(&(struct wire_grant){.to_token = transfer->remote_token,
                                           .from_token = transfer->token,
                                           .has_base = transfer->has_base},
                      &w);
    transfer_send(transfer->peer, WIRE_GRANT, &w);
}

/* Of a put whose version is over. */
void transfer_send_cancel(const struct transfer *transfer)
{
    transfer_send_end(transfer->peer, WIRE_CANCEL, transfer->remote_token, TCK_ERR_CANCELED, "its version is over");
}

void transfer_send_copied(const struct transfer *transfer)
{
    struct writer w = writer_new(0);

    wire_copied_encode(&(struct wire_copied){.to_token = transfer->remote_token, .bytes = transfer->copied}, &w);
    transfer_send(transfer->peer, WIRE_COPIED, &w);
}

void transfer_send_want(const struct transfer *transfer, uint32_t chunk)
{
    struct writer w = writer_new(0);

    wire_chunk_encode(&(struct wire_chunk){.to_token = transfer->remote_token, .index = chunk}, &w);
    transfer_send(transfer->peer, WIRE_WANT, &w);
}

void transfer_send_copy(const struct transfer *transfer, enum wire_kind kind)
{
    struct wire_copy copy = {
        .to_token = transfer->remote_token, .from_token = transfer->token, .offer = transfer->offer};
    struct writer w = writer_new(PEER_MESSAGE_MAX);

    if (kind == WIRE_OFFER && transfer->item.base != NULL) {
        copy.same = transfer->item.base->same;
        copy.same_bytes = bits_bytes(transfer->count);
    }
    wire_copy_encode(&copy, &w);
    if (kind != WIRE_PULL) {
        wire_crcs_encode(transfer->item.crcs, chunk_count(transfer->offer.image_bytes), &w);
    }
    transfer_send(transfer->peer, kind, &w);
}
