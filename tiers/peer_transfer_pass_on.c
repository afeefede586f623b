/* SPDX-License-Identifier: Apache-2.0
 * Copies that other agents pull while they still arrive here. The owner of the slot reports what has arrived; only
 * that is sent. */
#include "tiers/peer_transfer.h"

#include <string.h>

void transfer_await(struct transfer *transfer)
{
    const uint8_t *here = transfer->item.here;

    transfer->unready = transfer->item.crcs == NULL;
    for (uint32_t i = 0; here != NULL && i < transfer->count; i++) {
        if (!bit_is_set(here, i)) {
            bit_clear(transfer->todo, i);
            transfer->left--;
            transfer->awaited++;
        }
    }
    transfer->item.here = NULL; /* from now on the owner reports each chunk */
}

bool transfer_waits_for_source(const struct transfer *transfer)
{
    return transfer->unready || (transfer->awaited > 0 && transfer->left == 0);
}

/* The next one after this (NULL: the first) that sends this image and waits for a part of it. */
static struct transfer *next_waiting(const struct peers *peers, const struct transfer *after, const uint8_t *image)
{
    struct transfer *transfer = after == NULL ? peers->transfers : after->next;

    while (transfer != NULL && (transfer->state == ENDED || transfer->own || !transfer->sending ||
                                transfer->item.image != image || (transfer->awaited == 0 && !transfer->unready))) {
        transfer = transfer->next;
    }
    return transfer;
}

void peers_arriving_digests(struct peers *peers, const uint8_t *image, uint32_t *crcs, struct hash128 root)
{
    struct transfer *transfer = NULL;

    while ((transfer = next_waiting(peers, transfer, image)) != NULL) {
        if (transfer->unready) {
            transfer->unready = false;
            transfer->item.crcs = crcs;
            transfer->item.root = transfer->offer.root = root;
            transfer_note_progress(transfer);
            transfer_send_copy(transfer, WIRE_READY);
        }
    }
}

/* A chunk of a transfer that is to be sent again was counted before. */
static void take_chunk(struct transfer *transfer, uint32_t chunk)
{
    bit_set(transfer->todo, chunk);
    transfer->left++;
    transfer->awaited--;
    transfer->next_chunk = chunk < transfer->next_chunk ? chunk : transfer->next_chunk;
    transfer_note_progress(transfer); /* the time for which it waited does not count */
    transfers_pump(transfer->peer);
}

void peers_arriving_chunk(struct peers *peers, const uint8_t *image, uint32_t chunk)
{
    struct transfer *transfer = NULL;

    while ((transfer = next_waiting(peers, transfer, image)) != NULL) {
        if (chunk < transfer->count && transfer->awaited > 0) {
            take_chunk(transfer, chunk);
        }
    }
}

void peers_arriving_failed(struct peers *peers, const uint8_t *image, tck_status_t code, const char *why)
{
    struct transfer *transfer = NULL;

    while ((transfer = next_waiting(peers, transfer, image)) != NULL) {
        transfer_give_up(transfer, code, why);
    }
}

void peers_end_get(struct peers *peers, const uint8_t *image)
{
    for (struct transfer *transfer = peers->transfers; transfer != NULL; transfer = transfer->next) {
        transfer->over |= transfer->own && !transfer->sending && transfer->item.image == image;
    }
}
