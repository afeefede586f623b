/* SPDX-License-Identifier: Apache-2.0
 * Incoming messages about transfers. */
#include "base/clock.h"
#include "base/failpoint.h"
#include "tiers/peer_transfer.h"

#include <stdlib.h>
#include <string.h>

/* ---- requests of the other side ---- */

/* True if the table matches the announced root. */
static bool table_is_right(const uint32_t *crcs, const struct peer_offer *offer)
{
    return hash128_is(digest_root(crcs, offer->image_bytes), offer->root);
}

/* The owner has filled in the item. */
static bool start_served(struct transfer *transfer)
{
    struct peer *peer = transfer->peer;
    const struct tier_item *item = &transfer->item;

    transfer_link(peer->peers, transfer);
    if (peer->up == NULL) {
        transfer_fail(transfer, TCK_ERR_UNREACHABLE, "the session ended");
    } else if (item->image == NULL || (item->crcs == NULL && item->here == NULL) ||
               item->image_bytes != transfer->offer.image_bytes) {
        transfer_give_up(transfer, TCK_ERR_LAYOUT, "the slot has another size");
    }
    return transfer->state != ENDED;
}

/* What the sender says is the same in the base is copied from there, if the owner has it. */
static void take_base(struct transfer *transfer, const uint8_t *same)
{
    transfer->has_base = same != NULL && transfer->item.base_image != NULL;
    transfer->reported_ms = clock_ms();
    for (uint32_t i = 0; transfer->has_base && i < transfer->count; i++) {
        if (bit_is_set(same, i)) {
            bit_set(transfer->todo, i);
            bit_set(transfer->seen, i);
            transfer->left++;
        }
    }
}

/* same: NULL if no base is named. */
static void accept_offer(struct transfer *transfer, const uint32_t *crcs, const uint8_t *same)
{
    const struct peers_setup *setup = &transfer->peer->peers->setup;
    struct peer *peer = transfer->peer;
    struct error err = {.code = TCK_OK};
    tck_status_t status = setup->offered(setup->ctx, peer, &transfer->offer, &transfer->item, &err);

    if (status == TCK_OK) {
        if (start_served(transfer)) {
            memcpy(transfer->item.crcs, crcs, transfer->count * sizeof(*crcs));
            transfer->state = MOVING;
            take_base(transfer, same);
            failpoint(copy, granting);
            transfer_send_grant(transfer);
            transfer_copy_base(transfer);
        }
        return;
    }
    if (status == TCK_ERR_EXIST) {
        transfer_send_ack(peer, transfer->remote_token, transfer->offer.root);
    } else {
        transfer_send_end(peer, WIRE_REFUSE, transfer->remote_token, status, err.text);
    }
    transfer_free(transfer);
}

static tck_status_t take_offer(struct peer *peer, const void *data, size_t len)
{
    struct wire_copy copy;
    struct transfer *transfer;
    uint32_t *crcs;

    if (wire_copy_decode(data, len, &copy) != TCK_OK || copy.crcs_bytes == 0 || copy.to_token != 0) {
        return TCK_ERR_PROTO;
    }
    if (peer->transfer_count >= TRANSFERS_MAX) {
        transfer_send_end(peer, WIRE_REFUSE, copy.from_token, TCK_ERR_BUSY, "too many transfers at once");
        return TCK_OK;
    }
    crcs = wire_copy_crcs(&copy);
    transfer = crcs == NULL ? NULL : transfer_new(peer, &copy.offer, false);
    if (transfer == NULL) {
        transfer_send_end(peer, WIRE_REFUSE, copy.from_token, TCK_ERR_NOMEM, "no memory for a transfer");
    } else if (!table_is_right(crcs, &copy.offer)) {
        transfer_send_end(peer, WIRE_REFUSE, copy.from_token, TCK_ERR_CORRUPT, "the chunk CRCs do not match the root");
        transfer_free(transfer);
    } else {
        transfer->remote_token = copy.from_token;
        accept_offer(transfer, crcs, copy.same_bytes > 0 ? copy.same : NULL);
    }
    free(crcs);
    return TCK_OK;
}

static void answer_pull(struct transfer *transfer)
{
    const struct peers_setup *setup = &transfer->peer->peers->setup;
    struct peer *peer = transfer->peer;
    struct error err = {.code = TCK_OK};
    tck_status_t status = setup->pulled(setup->ctx, peer, &transfer->offer, &transfer->item, &err);

    if (status != TCK_OK) {
        transfer_send_end(peer, WIRE_CANCEL, transfer->remote_token, status, err.text);
        transfer_free(transfer);
        return;
    }
    if (start_served(transfer)) {
        transfer_await(transfer);
    }
    if (transfer->state != ENDED && !transfer->unready) {
        transfer->offer.root = transfer->item.root;
        transfer_send_copy(transfer, WIRE_READY);
    }
}

static tck_status_t take_pull(struct peer *peer, const void *data, size_t len)
{
    struct wire_copy copy;
    struct transfer *transfer;

    if (wire_copy_decode(data, len, &copy) != TCK_OK || copy.crcs_bytes != 0 || copy.to_token != 0) {
        return TCK_ERR_PROTO;
    }
    if (peer->transfer_count >= TRANSFERS_MAX) {
        transfer_send_end(peer, WIRE_CANCEL, copy.from_token, TCK_ERR_BUSY, "too many transfers at once");
        return TCK_OK;
    }
    transfer = transfer_new(peer, &copy.offer, true);
    if (transfer == NULL) {
        transfer_send_end(peer, WIRE_CANCEL, copy.from_token, TCK_ERR_NOMEM, "no memory for a transfer");
        return TCK_OK;
    }
    transfer->remote_token = copy.from_token;
    answer_pull(transfer);
    return TCK_OK;
}

/* ---- answers of the other side ---- */

static bool is_zero(struct hash128 root)
{
    return root.hi == 0 && root.lo == 0;
}

static void report_digests(const struct transfer *transfer)
{
    const struct tier_watch *watch = transfer->item.watch;

    if (watch != NULL) {
        watch->digests(watch->ctx, transfer->offer.root);
    }
}

static void take_table(struct transfer *transfer, const struct wire_copy *copy)
{
    uint32_t *crcs = wire_copy_crcs(copy);

    transfer->remote_token = copy->from_token;
    if (crcs == NULL) {
        transfer_give_up(transfer, TCK_ERR_NOMEM, "no memory for the chunk CRCs");
        return;
    }
    if (!table_is_right(crcs, &copy->offer)) {
        transfer_give_up(transfer, TCK_ERR_CORRUPT, "the chunk CRCs do not match the root");
    } else if (!is_zero(transfer->item.root) && !hash128_is(transfer->item.root, copy->offer.root)) {
        transfer_give_up(transfer, TCK_ERR_CORRUPT, "the peer's copy has another root digest than expected");
    } else {
        memcpy(transfer->item.crcs, crcs, transfer->count * sizeof(*crcs));
        transfer->offer.root = copy->offer.root;
        transfer->state = MOVING;
        transfer_send_grant(transfer);
        report_digests(transfer);
    }
    free(crcs);
}

static tck_status_t take_ready(struct peer *peer, const void *data, size_t len)
{
    struct transfer *transfer;
    struct wire_copy copy;

    if (wire_copy_decode(data, len, &copy) != TCK_OK || copy.crcs_bytes == 0 || copy.same_bytes > 0) {
        return TCK_ERR_PROTO;
    }
    transfer = transfer_find_live(peer, copy.to_token, false);
    if (transfer == NULL) {
        transfer_send_end(peer, WIRE_REFUSE, copy.from_token, TCK_ERR_CANCELED, "the requester has given it up");
        return TCK_OK;
    }
    if (transfer->state != ASKED || copy.offer.image_bytes != transfer->offer.image_bytes) {
        return TCK_ERR_PROTO;
    }
    transfer_note_progress(transfer);
    take_table(transfer, &copy);
    return TCK_OK;
}

/* What is the same in the base has to be sent nevertheless. */
static void announce_more(const struct transfer *transfer, uint64_t bytes)
{
    const struct tier_pace *pace = &transfer->peer->peers->setup.pace;

    if (transfer->own && pace->more != NULL) {
        transfer->item.base->more += bytes;
        pace->more(pace->ctx, bytes);
    }
}

/* A base was named. What is the same there is not sent if the receiver has it. */
static void skip_same(struct transfer *transfer, bool has_base)
{
    uint64_t bytes = 0;

    transfer->has_base = has_base;
    for (uint32_t i = 0; i < transfer->count; i++) {
        if (!bit_is_set(transfer->item.base->same, i)) {
            continue;
        }
        bytes += chunk_size(transfer->offer.image_bytes, i);
        if (has_base) {
            bit_clear(transfer->todo, i);
            transfer->left--;
        }
    }
    if (has_base) {
        transfer->item.base->not_sent = bytes;
    } else {
        announce_more(transfer, bytes);
    }
}

static tck_status_t take_grant(struct peer *peer, const void *data, size_t len)
{
    struct transfer *transfer;
    struct wire_grant grant;

    if (wire_grant_decode(data, len, &grant) != TCK_OK) {
        return TCK_ERR_PROTO;
    }
    transfer = transfer_find_live(peer, grant.to_token, true);
    if (transfer == NULL) {
        transfer_send_end(peer, WIRE_CANCEL, grant.from_token, TCK_ERR_CANCELED, "the sender has given it up");
        return TCK_OK;
    }
    if (transfer->state != ASKED || transfer->unready || (grant.has_base && transfer->item.base == NULL)) {
        return TCK_ERR_PROTO;
    }
    if (transfer->item.base != NULL) {
        skip_same(transfer, grant.has_base);
    }
    transfer->remote_token = grant.from_token;
    transfer->state = MOVING;
    failpoint(copy, granted);
    transfer_note_progress(transfer);
    if (transfer->canceled) {
        transfer_send_cancel(transfer);
    }
    transfers_pump(peer);
    return TCK_OK;
}

static tck_status_t take_copied(struct peer *peer, const void *data, size_t len)
{
    struct transfer *transfer;
    struct wire_copied copied;

    if (wire_copied_decode(data, len, &copied) != TCK_OK) {
        return TCK_ERR_PROTO;
    }
    transfer = transfer_find_live(peer, copied.to_token, true);
    if (transfer == NULL) {
        return TCK_OK;
    }
    if (!transfer->has_base || copied.bytes < transfer->copied || copied.bytes > transfer->item.base->not_sent) {
        return TCK_ERR_PROTO;
    }
    progress_add(transfer->item.progress, copied.bytes - transfer->copied);
    transfer->copied = copied.bytes;
    transfer_note_progress(transfer);
    return TCK_OK;
}

/* Whether the receiver was to copy this chunk from the base. It asks for each once, when it has found it damaged. */
static bool may_want(const struct transfer *transfer, uint32_t chunk)
{
    return transfer->has_base && chunk < transfer->count && bit_is_set(transfer->item.base->same, chunk) &&
           !bit_is_set(transfer->todo, chunk);
}

static tck_status_t take_want(struct peer *peer, const void *data, size_t len)
{
    struct transfer *transfer;
    struct wire_chunk want;

    if (wire_chunk_decode(data, len, &want) != TCK_OK) {
        return TCK_ERR_PROTO;
    }
    transfer = transfer_find_live(peer, want.to_token, true);
    if (transfer == NULL) {
        return TCK_OK;
    }
    if (!may_want(transfer, want.index)) {
        return TCK_ERR_PROTO;
    }
    bit_set(transfer->todo, want.index);
    transfer->left++;
    transfer->next_chunk = want.index < transfer->next_chunk ? want.index : transfer->next_chunk;
    transfer->item.base->not_sent -= chunk_size(transfer->offer.image_bytes, want.index);
    announce_more(transfer, chunk_size(transfer->offer.image_bytes, want.index));
    transfer_note_progress(transfer);
    transfers_pump(peer);
    return TCK_OK;
}

/* An ACK comes before any chunk (the receiver had the copy already) or after all of them. */
static tck_status_t handle_ack(struct peer *peer, const void *data, size_t len)
{
    struct transfer *transfer;
    struct wire_ack ack;

    if (wire_ack_decode(data, len, &ack) != TCK_OK) {
        return TCK_ERR_PROTO;
    }
    transfer = transfer_find_live(peer, ack.to_token, true);
    if (transfer == NULL) {
        return TCK_OK;
    }
    if (transfer->state == MOVING && (transfer->left > 0 || transfer->awaited > 0)) {
        return TCK_ERR_PROTO;
    }
    if (hash128_is(ack.root, transfer->offer.root)) {
        transfer_succeed(transfer);
    } else {
        transfer_fail(transfer, TCK_ERR_CORRUPT, "it was acknowledged with another root digest");
    }
    return TCK_OK;
}

/* REFUSE is for the sender, CANCEL for the receiver. */
static tck_status_t handle_end(struct peer *peer, bool to_sender, const void *data, size_t len)
{
    struct transfer *transfer;
    struct wire_end end;

    if (wire_end_decode(data, len, &end) != TCK_OK) {
        return TCK_ERR_PROTO;
    }
    transfer = transfer_find_live(peer, end.to_token, to_sender);
    if (transfer != NULL) {
        transfer->canceled = transfer->canceled || !to_sender;
        transfer_fail(transfer, end.error.code, end.error.text);
    }
    return TCK_OK;
}

tck_status_t transfer_handle_message(struct peer *peer, enum wire_kind kind, const void *data, size_t len)
{
    switch ((int)kind) {
    case WIRE_OFFER:
        return take_offer(peer, data, len);
    case WIRE_PULL:
        return take_pull(peer, data, len);
    case WIRE_READY:
        return take_ready(peer, data, len);
    case WIRE_GRANT:
        return take_grant(peer, data, len);
    case WIRE_ACK:
        return handle_ack(peer, data, len);
    case WIRE_REFUSE:
    case WIRE_CANCEL:
        return handle_end(peer, kind == WIRE_REFUSE, data, len);
    case WIRE_COPIED:
        return take_copied(peer, data, len);
    case WIRE_WANT:
        return take_want(peer, data, len);
    default:
        return TCK_ERR_PROTO;
    }
}
