/* SPDX-License-Identifier: Apache-2.0
 * The bytes of transfers: pushing chunks within a window, receiving them, and checking them in the pool. */
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/progress.h"
#include "tiers/peer_transfer.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COPIES_AT_ONCE 4 /* chunks of one transfer that are copied from its base */
#define JOIN_NS        1000000

/* One chunk's check, after it was copied from the base (NULL: it was sent). Outlives its transfer only if the peers are
 * freed before its done function has run. */
struct crc_job {
    struct crc_job *next, **at; /* in peers->jobs, while it has its transfer */
    struct transfer *transfer;
    uint32_t index;
    const uint8_t *base;
    uint8_t *data;
    size_t len;
    uint32_t crc;
    atomic_bool worked;
};

/* ---- sending ---- */

static bool is_paced(const struct transfer *transfer)
{
    return transfer->own && transfer->peer->peers->setup.pace.take != NULL;
}

static bool can_push(const struct transfer *transfer)
{
    return transfer->sending && transfer->state == MOVING && !transfer->stalled && !transfer->canceled &&
           transfer->left > 0;
}

/* Its chunks could be sent, if none of earlier transfers were. One that was not granted yet may still be refused. */
static bool waits_for_turn(const struct transfer *transfer)
{
    return transfer->own && can_push(transfer) && transfer->moving == 0;
}

/* The next chunk that is to be sent or copied; there is one. */
static uint32_t next_of(struct transfer *transfer)
{
    while (!bit_is_set(transfer->todo, transfer->next_chunk)) {
        transfer->next_chunk++;
    }
    return transfer->next_chunk;
}

static uint32_t take_next_of(struct transfer *transfer)
{
    uint32_t chunk = next_of(transfer);

    bit_clear(transfer->todo, chunk);
    transfer->left--;
    transfer->next_chunk++;
    return chunk;
}

/* Chunks are counted as if they ended in their order. What was begun later waits for its turn: transfers_pump. */
static void count_sent(const struct transfer *transfer, uint32_t chunk)
{
    progress_add(transfer->item.progress, chunk_size(transfer->offer.image_bytes, chunk));
    for (const struct transfer *later = transfer->next; later != NULL; later = later->next) {
        if (later->peer == transfer->peer && waits_for_turn(later)) {
            progress_queued(later->item.progress);
        }
    }
}

static void on_pushed(void *ctx, bool ok)
{
    struct transfer *transfer = ctx;
    struct peer *peer = transfer->peer;
    uint32_t chunk = transfer->pushed[transfer->landed++ % PUSHES_PER_PEER];

    transfer->moving--;
    peer->pushing--;
    peer->peers->ended_any = true;
    if (ok) {
        count_sent(transfer, chunk);
        transfer_note_progress(transfer);
    } else {
        transfer->stalled = true;
    }
    transfers_pump(peer);
}

/* Takes what the next chunk needs, or throttles the transfer. */
static bool may_send_next(struct transfer *transfer)
{
    const struct tier_pace *pace = &transfer->peer->peers->setup.pace;
    uint32_t bytes = chunk_size(transfer->offer.image_bytes, next_of(transfer));
    bool was_held = transfer->held;

    transfer->held = is_paced(transfer) && !pace->take(pace->ctx, bytes);
    if (was_held && !transfer->held) {
        transfer_note_progress(transfer);
    }
    return !transfer->held;
}

static void push_next(struct transfer *transfer)
{
    struct wire_chunk chunk = {.to_token = transfer->remote_token, .index = take_next_of(transfer)};
    const uint8_t *data = transfer->item.image + (uint64_t)chunk.index * CHUNK_BYTES;
    struct peer *peer = transfer->peer;
    uint8_t header[WIRE_CHUNK_BYTES];
    struct writer w = writer_over(header, sizeof(header));
    tck_status_t status;

    wire_chunk_encode(&chunk, &w);
    transfer->pushed[transfer->pushes++ % PUSHES_PER_PEER] = chunk.index;
    if (transfer->item.sent != NULL) {
        *transfer->item.sent += chunk_size(transfer->offer.image_bytes, chunk.index);
    }
    transfer->moving++;
    peer->pushing++;
    status = link_push(peer->up->bulk->conn, header, sizeof(header), data,
                       chunk_size(transfer->offer.image_bytes, chunk.index), on_pushed, transfer);
    failpoint(copy, pushed);
    if (status != TCK_OK) {
        transfer->moving--;
        peer->pushing--;
        transfer_give_up(transfer, status, "a chunk could not be sent");
    }
}

/* The window is per peer, and the oldest transfer is served first: served all at once, all would be late. */
void transfers_pump(struct peer *peer)
{
    struct transfer *transfer = peer->peers->transfers;

    while (peer->up != NULL && !peer->up->relayed && peer->pushing < PUSHES_PER_PEER && transfer != NULL) {
        if (transfer->peer == peer && can_push(transfer) && may_send_next(transfer)) {
            push_next(transfer);
        } else {
            transfer = transfer->next;
        }
    }
}

/* ---- receiving ---- */

void *transfer_chunk(void *ctx, struct link_conn *conn, const void *header, size_t header_len, size_t len)
{
    struct session *session = session_of_bulk(conn);
    struct transfer *transfer;
    struct wire_chunk chunk;

    (void)ctx;
    if (session == NULL || wire_chunk_decode(header, header_len, &chunk) != TCK_OK) {
        return NULL;
    }
    transfer = transfer_find_live(session->peer, chunk.to_token, false);
    if (transfer == NULL || transfer->state != MOVING || chunk.index >= transfer->count ||
        len != chunk_size(transfer->offer.image_bytes, chunk.index)) {
        return NULL;
    }
    if (bit_is_set(transfer->seen, chunk.index)) {
        return NULL; /* it came already, or comes from the base, and may be under check */
    }
    bit_set(transfer->seen, chunk.index);
    transfer->moving++;
    transfer_note_progress(transfer); /* its sender may have held it back until now */
    return transfer->item.image + (uint64_t)chunk.index * CHUNK_BYTES;
}

static void crc_work(void *ctx)
{
    struct crc_job *job = ctx;

    if (job->base != NULL) {
        memcpy(job->data, job->base, job->len);
    }
    job->crc = crc32c(0, job->data, job->len);
    atomic_store_explicit(&job->worked, true, memory_order_release);
}

static void take_job_out(struct crc_job *job)
{
    *job->at = job->next;
    if (job->next != NULL) {
        job->next->at = job->at;
    }
}

/* It is damaged in the base, so it has to be sent. */
static void want_chunk(struct transfer *transfer, uint32_t chunk)
{
    const struct peers_setup *setup = &transfer->peer->peers->setup;
    char name[ERROR_TEXT_BYTES];
    bool bad;

    bit_clear(transfer->seen, chunk);
    transfer_send_want(transfer, chunk);
    bad = setup->base_bad(setup->ctx, transfer->peer, &transfer->item, chunk);
    if (!transfer->warned) {
        transfer->warned = true;
        transfer_name(transfer, name);
        log_warn("%s: chunk %u does not match in the version before%s, so it is sent, too", name, chunk,
                 bad ? ", which is damaged here" : "");
    }
}

/* Reports progress to the sender, at most once per heartbeat: it has no other sign of it. */
static void count_copied(struct transfer *transfer, uint32_t chunk)
{
    uint64_t now_ms = clock_ms();

    transfer->copied += chunk_size(transfer->offer.image_bytes, chunk);
    if (now_ms - transfer->reported_ms >= transfer->peer->peers->setup.heartbeat_ms) {
        transfer->reported_ms = now_ms;
        transfer_send_copied(transfer);
    }
}

static void judge_chunk(struct transfer *transfer, const struct crc_job *job, bool canceled)
{
    char why[ERROR_TEXT_BYTES];

    if (transfer->state == ENDED) {
        return;
    }
    if (canceled) {
        transfer_give_up(transfer, TCK_ERR_CANCELED, "the agent is ending");
    } else if (job->crc != transfer->item.crcs[job->index] && job->base != NULL) {
        want_chunk(transfer, job->index);
    } else if (job->crc != transfer->item.crcs[job->index]) {
        snprintf(why, sizeof(why), "chunk %u does not match its CRC", job->index);
        transfer_give_up(transfer, TCK_ERR_CORRUPT, why);
        log_error("%s", transfer->outcome.text);
    } else {
        progress_add(transfer->item.progress, chunk_size(transfer->offer.image_bytes, job->index));
        if (job->base != NULL) {
            count_copied(transfer, job->index);
        }
        if (transfer->item.watch != NULL) {
            transfer->item.watch->chunk(transfer->item.watch->ctx, job->index);
        }
        if (++transfer->verified == transfer->count) {
            transfer_succeed(transfer);
        }
    }
}

static void crc_done(void *ctx, bool canceled)
{
    struct crc_job *job = ctx;
    struct transfer *transfer = job->transfer;

    if (transfer != NULL) {
        take_job_out(job);
        transfer->checking--;
        transfer->copying -= job->base != NULL;
        transfer->peer->peers->ended_any = true;
        transfer_note_progress(transfer);
        judge_chunk(transfer, job, canceled);
        transfer_copy_base(transfer);
    }
    free(job);
}

/* base: where it is to be copied from before. */
static void check_chunk(struct transfer *transfer, uint32_t index, const uint8_t *base)
{
    struct peers *peers = transfer->peer->peers;
    struct crc_job *job = calloc(1, sizeof(*job));

    if (job == NULL) {
        transfer_give_up(transfer, TCK_ERR_NOMEM, "no memory to check a chunk");
        return;
    }
    job->transfer = transfer;
    job->index = index;
    job->base = base;
    job->data = transfer->item.image + (uint64_t)index * CHUNK_BYTES;
    job->len = chunk_size(transfer->offer.image_bytes, index);
    if (pool_submit(peers->setup.pool, crc_work, crc_done, job) != TCK_OK) {
        free(job);
        transfer_give_up(transfer, TCK_ERR_NOMEM, "a chunk could not be checked");
        return;
    }
    job->next = peers->jobs;
    job->at = &peers->jobs;
    if (job->next != NULL) {
        job->next->at = &job->next;
    }
    peers->jobs = job;
    transfer->checking++;
    transfer->copying += base != NULL;
}

void transfer_copy_base(struct transfer *transfer)
{
    while (!transfer->sending && transfer->state == MOVING && transfer->left > 0 &&
           transfer->copying < COPIES_AT_ONCE) {
        uint32_t chunk = take_next_of(transfer);

        check_chunk(transfer, chunk, transfer->item.base_image + (uint64_t)chunk * CHUNK_BYTES);
    }
}

void transfer_chunk_done(void *ctx, struct link_conn *conn, const void *header, size_t header_len, bool ok)
{
    struct peers *peers = ctx;
    struct transfer *transfer;
    struct wire_chunk chunk;

    (void)conn;
    if (wire_chunk_decode(header, header_len, &chunk) != TCK_OK) {
        return; /* cannot happen: transfer_chunk accepted it */
    }
    transfer = transfer_find(peers, chunk.to_token);
    transfer->moving--;
    peers->ended_any = true;
    if (transfer->state == ENDED) {
        return;
    }
    failpoint(copy, arrived);
    if (ok) {
        transfer_note_progress(transfer);
        failpoint_bytes(copy, chunk, transfer->item.image + (uint64_t)chunk.index * CHUNK_BYTES, 1);
        check_chunk(transfer, chunk.index, NULL);
    } else {
        transfer_give_up(transfer, TCK_ERR_UNREACHABLE, "a chunk was cut off");
    }
}

void transfers_join(struct peers *peers)
{
    const struct timespec pause = {.tv_nsec = JOIN_NS};

    while (peers->jobs != NULL) {
        struct crc_job *job = peers->jobs;

        while (!atomic_load_explicit(&job->worked, memory_order_acquire)) {
            nanosleep(&pause, NULL);
        }
        take_job_out(job);
        job->transfer->checking--;
        job->transfer = NULL; /* crc_done frees it later */
        peers->ended_any = true;
    }
}
