/* SPDX-License-Identifier: Apache-2.0
 * Transfers that make no progress. */
#include "base/log.h"
#include "tiers/peer_transfer.h"

/* A push or receive can be canceled only by ending its whole session. */
static void expire(struct transfer *transfer)
{
    struct peer *peer = transfer->peer;
    char name[ERROR_TEXT_BYTES];

    transfer_name(transfer, name);
    if (transfer->moving > 0 && peer->up != NULL) {
        log_warn("%s: no progress, the session ends", name);
        session_silent(peer->up, TCK_ERR_TIMEDOUT, "a transfer made no progress");
    } else {
        transfer_give_up(transfer, TCK_ERR_TIMEDOUT, "no progress");
    }
}

/* How long it may make no progress. The sender of a copy may throttle it for longer than a chunk takes. A get of a term
 * that is over may wait for what its source does not receive any more either. */
static uint32_t patience_ms(const struct transfer *transfer)
{
    const struct peers_setup *setup = &transfer->peer->peers->setup;
    if (transfer->over && transfer->moving == 0) {
        return setup->heartbeat_ms;
    }
    bool held = !transfer->own && !transfer->sending && transfer->moving == 0;

    return held && setup->held_timeout_ms != 0 ? setup->held_timeout_ms : setup->transfer_timeout_ms;
}

static struct transfer *find_late(const struct peers *peers, uint64_t now_ms)
{
    for (struct transfer *transfer = peers->transfers; transfer != NULL; transfer = transfer->next) {
        uint64_t last_ms = transfer->progress_ms;
        bool idle = transfer->held || transfer_waits_for_source(transfer);
        bool waits = transfer->moving > 0 || (transfer->state != ENDED && transfer->checking == 0 && !idle);

        /* It may only be waiting for its turn while others move. */
        last_ms = last_ms > transfer->peer->progress_ms ? last_ms : transfer->peer->progress_ms;
        if (waits && now_ms > last_ms && now_ms - last_ms >= patience_ms(transfer)) {
            return transfer;
        }
    }
    return NULL;
}

void transfers_expire(struct peers *peers, uint64_t now_ms)
{
    struct transfer *transfer;

    while ((transfer = find_late(peers, now_ms)) != NULL) {
        expire(transfer);
        transfer->progress_ms = now_ms; /* what is still in flight gets the same time to drain */
    }
}
