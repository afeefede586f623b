/* SPDX-License-Identifier: Apache-2.0
 * The life of transfers: how they begin, end, and are given up. */
#include "base/clock.h"
#include "base/failpoint.h"
#include "tiers/peer_transfer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the list ---- */

void transfer_link(struct peers *peers, struct transfer *transfer)
{
    *peers->transfers_end = transfer;
    peers->transfers_end = &transfer->next;
    transfer->peer->transfer_count++;
}

static void unlink_transfer(struct peers *peers, struct transfer *transfer)
{
    struct transfer **at = &peers->transfers;

    while (*at != transfer) {
        at = &(*at)->next;
    }
    *at = transfer->next;
    if (transfer->next == NULL) {
        peers->transfers_end = at;
    }
    transfer->peer->transfer_count--;
}

struct transfer *transfer_find(const struct peers *peers, uint64_t token)
{
    struct transfer *transfer = peers->transfers;

    while (transfer != NULL && transfer->token != token) {
        transfer = transfer->next;
    }
    return transfer;
}

struct transfer *transfer_find_live(const struct peer *peer, uint64_t token, bool sending)
{
    struct transfer *transfer = transfer_find(peer->peers, token);
    bool fits = transfer != NULL && transfer->peer == peer && transfer->sending == sending;

    return fits && transfer->state != ENDED ? transfer : NULL;
}

struct transfer *transfer_new(struct peer *peer, const struct peer_offer *offer, bool sending)
{
    struct transfer *transfer = calloc(1, sizeof(*transfer));

    if (transfer == NULL) {
        return NULL;
    }
    transfer->peer = peer;
    transfer->sending = sending;
    transfer->offer = *offer;
    transfer->token = ++peer->peers->last_token;
    transfer->count = chunk_count(offer->image_bytes);
    transfer->progress_ms = clock_ms();
    transfer->todo = calloc(bits_bytes(transfer->count), 1);
    transfer->seen = sending ? NULL : calloc(bits_bytes(transfer->count), 1);
    if (transfer->todo == NULL || (!sending && transfer->seen == NULL)) {
        transfer_free(transfer);
        return NULL;
    }
    for (uint32_t i = 0; sending && i < transfer->count; i++) {
        bit_set(transfer->todo, i);
        transfer->left++;
    }
    return transfer;
}

void transfer_free(struct transfer *transfer)
{
    free(transfer->seen);
    free(transfer->todo);
    free(transfer);
}

void transfer_note_progress(struct transfer *transfer)
{
    transfer->progress_ms = clock_ms();
    transfer->peer->progress_ms = transfer->progress_ms;
}

/* ---- the end of a transfer ---- */

void transfer_name(const struct transfer *transfer, char out[ERROR_TEXT_BYTES])
{
    char shard[HASH128_TEXT];

    hash128_text(transfer->offer.shard, shard);
    snprintf(out, ERROR_TEXT_BYTES, "shard %s of step %" PRIu64 " %s node %s", shard, transfer->offer.version.step,
             transfer->sending ? "to" : "from", transfer->peer->node.name);
}

void transfer_succeed(struct transfer *transfer)
{
    transfer->state = ENDED;
    transfer->outcome = (struct error){.code = TCK_OK};
    transfer->peer->peers->ended_any = true;
}

void transfer_fail(struct transfer *transfer, tck_status_t code, const char *why)
{
    char name[ERROR_TEXT_BYTES];

    if (transfer->state == ENDED) {
        return;
    }
    transfer_name(transfer, name);
    transfer->state = ENDED;
    error_set(&transfer->outcome, code, "%s: %s", name, why);
    transfer->peer->peers->ended_any = true;
}

void transfer_give_up(struct transfer *transfer, tck_status_t code, const char *why)
{
    if (transfer->state == ENDED) {
        return;
    }
    transfer_fail(transfer, code, why);
    if (transfer->remote_token != 0) {
        transfer_send_end(transfer->peer, transfer->sending ? WIRE_CANCEL : WIRE_REFUSE, transfer->remote_token, code,
                          why);
    }
}

void transfers_fail(struct peer *peer, tck_status_t code, const char *why)
{
    for (struct transfer *transfer = peer->peers->transfers; transfer != NULL; transfer = transfer->next) {
        if (transfer->peer == peer) {
            transfer->canceled = false; /* a later session knows nothing of it, so nothing is to be confirmed there */
            transfer_fail(transfer, code, why);
        }
    }
}

/* The owner writes the header now; only then is the copy acknowledged to the sender. */
static void finish_stored(struct transfer *transfer)
{
    const struct peers_setup *setup = &transfer->peer->peers->setup;
    tck_status_t status;

    transfer->offer.from_base = transfer->copied;
    status = setup->stored(setup->ctx, transfer->peer, &transfer->offer, &transfer->outcome);

    if (transfer->outcome.code != TCK_OK) {
        if (transfer->canceled) {
            transfer_send_end(transfer->peer, WIRE_REFUSE, transfer->remote_token, TCK_ERR_CANCELED,
                              "its version is over");
        }
        return;
    }
    failpoint(copy, stored);
    if (status == TCK_OK) {
        transfer_send_ack(transfer->peer, transfer->remote_token, transfer->offer.root);
    } else {
        transfer_send_end(transfer->peer, WIRE_REFUSE, transfer->remote_token, status, status_text(status));
    }
}

static void finish_own(struct transfer *transfer)
{
    if (!transfer->sending && transfer->outcome.code == TCK_OK) {
        transfer->result->root = transfer->offer.root;
        transfer_send_ack(transfer->peer, transfer->remote_token, transfer->offer.root);
    }
    transfer->done(transfer->ctx, &transfer->outcome);
}

static void finish(struct transfer *transfer)
{
    struct peers *peers = transfer->peer->peers;

    if (transfer->own) {
        finish_own(transfer);
    } else if (transfer->sending) {
        peers->setup.pull_done(peers->setup.ctx, transfer->peer, &transfer->item);
    } else {
        finish_stored(transfer);
    }
    unlink_transfer(peers, transfer);
    transfer_free(transfer);
}

static struct transfer *find_finished(const struct peers *peers)
{
    struct transfer *transfer = peers->transfers;

    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): finish unlinks what it frees */
    while (transfer != NULL && (transfer->state != ENDED || transfer->moving > 0 || transfer->checking > 0)) {
        transfer = transfer->next;
    }
    return transfer;
}

bool transfers_finish(struct peers *peers)
{
    struct transfer *transfer;
    bool any = false;

    if (!peers->ended_any) {
        return false;
    }
    peers->ended_any = false;
    while ((transfer = find_finished(peers)) != NULL) {
        finish(transfer); /* its callback may begin and end others */
        any = true;
    }
    return any;
}

/* ---- interface ---- */

static tck_status_t begin(struct peer *peer, uint64_t term, const struct tier_item *item, bool sending,
                          struct transfer **out, struct error *err)
{
    struct peer_offer offer = {.term = term,
                               .version = item->version,
                               .shard = item->shard,
                               .image_bytes = item->image_bytes,
                               .root = item->root};
    struct transfer *transfer;

    if (item->base != NULL) {
        offer.base = item->base->version;
        offer.base_root = item->base->root;
        item->base->not_sent = item->base->more = 0;
    }
    if (peer->up == NULL || peer->up->relayed) {
        return error_set(err, TCK_ERR_UNREACHABLE, "node %s %s", peer->node.name,
                         peer->up == NULL ? "is down" : "has no direct session with this one yet");
    }
    if (item->image_bytes == 0 || item->image_bytes > WIRE_IMAGE_MAX) {
        return error_set(err, TCK_ERR_INVAL, "an image of %" PRIu64 " bytes cannot be sent", item->image_bytes);
    }
    if (peer->transfer_count >= TRANSFERS_MAX) {
        return error_set(err, TCK_ERR_BUSY, "there are %u transfers with node %s already", TRANSFERS_MAX,
                         peer->node.name);
    }
    transfer = transfer_new(peer, &offer, sending);
    if (transfer == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a transfer with node %s", peer->node.name);
    }
    transfer->own = true;
    transfer->item = *item;
    transfer_link(peer->peers, transfer);
    *out = transfer;
    return TCK_OK;
}

tck_status_t peer_put(struct peer *peer, uint64_t term, const struct tier_item *item, tier_done_fn *done, void *ctx,
                      struct error *err)
{
    struct transfer *transfer;
    tck_status_t status = begin(peer, term, item, true, &transfer, err);

    if (status != TCK_OK) {
        return status;
    }
    transfer->done = done;
    transfer->ctx = ctx;
    transfer_send_copy(transfer, WIRE_OFFER);
    failpoint(copy, offered);
    return TCK_OK;
}

/* An offer that was not answered yet may have been granted: CANCEL follows the GRANT. */
static void cancel(struct transfer *transfer)
{
    if (transfer->state == MOVING && !transfer->canceled) {
        transfer_send_cancel(transfer);
    }
    if (transfer->held) {
        transfer->held = false;
        transfer_note_progress(transfer); /* the time for which it was throttled does not count */
    }
    transfer->canceled = true;
}

void peer_cancel_put(struct peer *peer, uint64_t term, struct version version, struct hash128 shard)
{
    for (struct transfer *transfer = peer->peers->transfers; transfer != NULL; transfer = transfer->next) {
        const struct peer_offer *offer = &transfer->offer;
        bool put = transfer->peer == peer && transfer->own && transfer->sending;

        if (put && offer->term == term && version_is(offer->version, version) && hash128_is(offer->shard, shard)) {
            cancel(transfer);
        }
    }
}

tck_status_t peer_get(struct peer *peer, uint64_t term, struct tier_item *item, tier_done_fn *done, void *ctx,
                      struct error *err)
{
    struct transfer *transfer;
    tck_status_t status = begin(peer, term, item, false, &transfer, err);

    if (status != TCK_OK) {
        return status;
    }
    transfer->result = item;
    transfer->done = done;
    transfer->ctx = ctx;
    transfer_send_copy(transfer, WIRE_PULL);
    return TCK_OK;
}
