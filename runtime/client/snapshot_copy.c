/* SPDX-License-Identifier: Apache-2.0
 * One snapshot: asks the agent for slots, copies the records into them, awaits the trainer's confirmation and seals.
 * The session is locked meanwhile. */
#include "client/snapshot_copy.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "client/device_digests.h"
#include "client/slot_copy.h"
#include "client/snapshot_outcome.h"
#include "client/term_over.h"

#include <inttypes.h>
#include <stdlib.h>

void snapshot_report_step(struct snapshot_worker *worker, enum message_type type, uint64_t number)
{
    struct msg_step step = {.seq = session_seq(worker->session), .step = number};
    struct writer w = writer_new(0);

    msg_step_encode(&step, &w);
    if (session_post(worker->session, type, &w, NULL) != TCK_OK) {
        log_debug("step %" PRIu64 " was not reported to the agent; it will be after reconnecting", number);
    }
}

static uint32_t stored_count(const struct slots *slots)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < slots->count; i++) {
        count += slots->shards[i].segment.stored_here;
    }
    return count;
}

/* One slot for each shard stored here, in their order. */
static bool grant_fits(const struct snapshot_worker *worker, const struct msg_grant *grant)
{
    uint32_t n = 0;

    if (grant->step != worker->step || grant->count != stored_count(worker->slots)) {
        return false;
    }
    for (uint32_t i = 0; i < worker->slots->count; i++) {
        const struct msg_segment *segment = &worker->slots->shards[i].segment;

        if (segment->stored_here && grant->slots[n++] >= segment->slot_count) {
            return false;
        }
    }
    return true;
}

static tck_status_t take_grant(struct snapshot_worker *worker, const struct ipc_frame *frame, struct msg_grant *out,
                               struct error *err)
{
    if (msg_grant_decode(frame->payload, frame->len, out) != TCK_OK) {
        return error_set(err, TCK_ERR_PROTO, "malformed grant from the agent");
    }
    if (!grant_fits(worker, out)) {
        free(out->slots);
        return error_set(err, TCK_ERR_PROTO, "the agent granted slots that do not exist");
    }
    return TCK_OK;
}

static tck_status_t request_slots(struct snapshot_worker *worker, struct msg_grant *out, struct error *err)
{
    struct msg_begin begin = {.seq = session_seq(worker->session),
                              .step = worker->step,
                              .to_storage = worker->to != SAVE_TO_MEMORY,
                              .last = worker->to == SAVE_LAST};
    uint64_t now_ms = clock_ms();
    int left_ms = worker->deadline_ms > now_ms ? (int)(worker->deadline_ms - now_ms) : 0;
    struct writer w = writer_new(0);
    struct ipc_frame frame;
    tck_status_t status;

    msg_begin_encode(&begin, &w);
    status = session_ask(worker->session, MSG_BEGIN, &w, MSG_GRANT, left_ms, &frame, err);
    if (status != TCK_OK) {
        return status;
    }
    status = take_grant(worker, &frame, out, err);
    ipc_frame_free(&frame);
    return status;
}

static uint64_t shard_bytes(const struct layout *layout, const struct shard *shard)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < shard->record_count; i++) {
        bytes += layout->records[shard->records[i]].bytes;
    }
    return bytes;
}

/* Lists the granted slots in worker->images, and writes the parts of their images that are the same at every step. */
static void prepare_slots(struct snapshot_worker *worker, const struct msg_grant *grant)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < worker->slots->count; i++) {
        struct shard_slots *shard = &worker->slots->shards[i];

        if (shard->segment.stored_here) {
            slot_prepare(shard, grant->slots[n], worker->layout, &worker->layout->shards[i]);
            worker->images[n] =
                (struct device_image){.shard = i, .pinned = shard->pinned, .image = slot_image(shard, grant->slots[n])};
            n++;
        }
    }
}

static uint64_t bytes_of(const struct layout *layout, const struct device_image *images, uint32_t count)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        bytes += shard_bytes(layout, &layout->shards[images[i].shard]);
    }
    return bytes;
}

/* Goes on even if the agent dies meanwhile: the slots outlive it, and its successor finds them sealed. Also on failure
 * nothing writes into the slots any more when it returns. */
static tck_status_t copy_shards(struct snapshot_worker *worker, const struct msg_grant *grant, uint64_t *bytes_out,
                                struct error *err)
{
    const struct device_image *images = worker->images;

    prepare_slots(worker, grant);
    tck_status_t status = devices_save_eager(worker->devices, images, grant->count, err);
    if (status == TCK_OK) {
        copier_note(worker->devices->copier, COPYING_EAGER_OVER);
        status = devices_save(worker->devices, images, grant->count, err);
    }
    if (status == TCK_OK) {
        *bytes_out = bytes_of(worker->layout, images, grant->count);
        copier_note(worker->devices->copier, COPYING_OVER);
        status = device_digests_make(worker->devices, worker->slots, worker->layout, images, grant->count, err);
    }
    if (status == TCK_OK) {
        device_digests_send(worker->session, worker->slots, worker->step);
    }
    tck_status_t finished = devices_finish(worker->devices, status == TCK_OK ? err : NULL);
    for (uint32_t i = 0; i < grant->count; i++) {
        image_put_heads(images[i].image, worker->layout, &worker->layout->shards[images[i].shard]);
    }
    return status == TCK_OK ? finished : status;
}

/* Seals with the root of the devices' digests, if they were made: the agent compares it with its own. */
static void seal_slot(struct snapshot_worker *worker, uint32_t i, uint32_t slot, struct version version)
{
    const struct shard_slots *shard = &worker->slots->shards[i];

    seal_set(&shard->seals[slot], version, shard->root_made ? &shard->root : NULL);
}

/* Only when everything is copied: a partial snapshot is worthless. */
static void seal_slots(struct snapshot_worker *worker, const struct msg_grant *grant)
{
    const struct version version = {worker->session->world.term, worker->step};
    uint32_t n = 0;

    for (uint32_t i = 0; i < worker->slots->count; i++) {
        const struct shard_slots *shard = &worker->slots->shards[i];

        if (shard->segment.stored_here) {
            seal_slot(worker, i, grant->slots[n++], version);
            failpoint(save, sealing);
        }
    }
    worker->sealed_step = worker->step;
}

/* Waits for the trainer to confirm that the records did not change during the copy. The session is unlocked meanwhile,
 * for others to use. */
static tck_status_t await_verdict(struct snapshot_worker *worker, struct error *err)
{
    tck_status_t status = TCK_OK;

    pthread_mutex_lock(&worker->lock);
    worker->copied = true;
    pthread_cond_broadcast(&worker->idle);
    if (worker->verdict == VERDICT_PENDING) {
        pthread_mutex_unlock(&worker->session->lock);
        while (worker->verdict == VERDICT_PENDING) {
            pthread_cond_wait(&worker->idle, &worker->lock);
        }
        pthread_mutex_unlock(&worker->lock); /* the session's lock comes first */
        pthread_mutex_lock(&worker->session->lock);
        pthread_mutex_lock(&worker->lock);
    }
    if (worker->verdict == VERDICT_GIVE_UP) {
        status = error_set(err, TCK_ERR_CANCELED, "%s", worker->verdict_why);
    }
    pthread_mutex_unlock(&worker->lock);
    return status;
}

static tck_status_t snapshot_locked(struct snapshot_worker *worker, uint64_t *bytes_out, struct error *err)
{
    struct msg_grant grant;
    tck_status_t status;

    worker->asked_step = worker->step;
    failpoint(save, asking);
    status = request_slots(worker, &grant, err);
    if (status == TCK_ERR_TIMEDOUT || status == TCK_ERR_PROTO) {
        snapshot_report_step(worker, MSG_ABANDON, worker->step); /* a grant may still arrive; it will not be used */
    }
    if (status != TCK_OK) {
        return status;
    }
    failpoint(save, granted);
    status = copy_shards(worker, &grant, bytes_out, err);
    failpoint(save, copied);
    if (status == TCK_OK) {
        status = await_verdict(worker, err);
    }
    if (status == TCK_OK) {
        seal_slots(worker, &grant);
        failpoint(save, sealed);
    }
    free(grant.slots);
    snapshot_report_step(worker, status == TCK_OK ? MSG_SEAL : MSG_ABANDON, worker->step);
    failpoint(save, told);
    return status;
}

static void take_snapshot(struct snapshot_worker *worker)
{
    struct error err = {0};
    uint64_t bytes = 0;
    tck_status_t status;

    pthread_mutex_lock(&worker->session->lock);
    status = snapshot_locked(worker, &bytes, &err);
    pthread_mutex_unlock(&worker->session->lock);
    if (status == TCK_ERR_DENIED) {
        (void)!session_term_over(worker->session, &err); /* gives a better reason than the agent's refusal */
    }
    if (status == TCK_OK) {
        snapshot_finish_copied(worker, bytes);
    } else {
        snapshot_finish_skipped(worker, &err);
    }
}

/* ---- other reports about a step ------------------------------------------------------------------------------- */

/* Begins the step and abandons it, so that this node refuses the version at once. */
static void give_up(struct snapshot_worker *worker)
{
    struct msg_grant grant;
    struct error ignored;

    pthread_mutex_lock(&worker->session->lock);
    worker->asked_step = worker->step;
    if (request_slots(worker, &grant, &ignored) == TCK_OK) {
        free(grant.slots);
    }
    snapshot_report_step(worker, MSG_ABANDON, worker->step);
    pthread_mutex_unlock(&worker->session->lock);
    snapshot_finish_skipped(worker, &worker->given_up);
}

/* The agent refuses to save a step again, but the coordinator notes that it is to go to storage. Without an agent the
 * request is kept until it is back: the step is still in memory. */
static void send_to_storage(struct snapshot_worker *worker)
{
    struct msg_grant grant;
    struct error err = {0};
    tck_status_t status;

    pthread_mutex_lock(&worker->session->lock);
    status = request_slots(worker, &grant, &err);
    pthread_mutex_unlock(&worker->session->lock);
    if (status == TCK_OK) {
        free(grant.slots);
        status = error_set(&err, TCK_ERR_PROTO, "the agent granted slots for a step that was saved before");
    }
    if (status == TCK_ERR_PROTO || status == TCK_ERR_DENIED) {
        snapshot_finish_skipped(worker, &err);
        return;
    }
    pthread_mutex_lock(&worker->lock);
    worker->owed_step = status == TCK_ERR_BUSY ? 0 : worker->step;
    snapshot_end(worker);
    pthread_mutex_unlock(&worker->lock);
}

void snapshot_run(struct snapshot_worker *worker)
{
    switch (worker->work) {
    case WORK_SAVE:
        take_snapshot(worker);
        return;
    case WORK_GIVE_UP:
        give_up(worker);
        return;
    case WORK_TO_STORAGE:
        send_to_storage(worker);
        return;
    }
}
