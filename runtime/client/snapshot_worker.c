/* SPDX-License-Identifier: Apache-2.0
 * The snapshot worker thread: sleeps until the trainer begins a snapshot or the agent's connection is lost. */
#include "client/snapshot_worker.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/thread.h"
#include "client/device_digests.h"
#include "client/spawn.h"
#include "client/term_over.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define RETURN_FIRST_MS 50 /* pause before reconnecting to the agent, doubled each time up to */
#define RETURN_LAST_MS  2000
#define FORSAKEN_MS     5000 /* neither agent nor supervisor for this long: the agent will not be restarted */

static const char UNCONFIRMED[] = "no call of tck_confirm said that its records did not change while they were copied";

/* ---- the end of a snapshot ----------------------------------------------------------------------------------- */

static void finish_copied(struct snapshot_worker *worker, uint64_t bytes)
{
    pthread_mutex_lock(&worker->lock);
    worker->copied_step = worker->step;
    worker->agent_hung = false;
    worker->counts.copied++;
    worker->counts.bytes += bytes;
    if (worker->told.code != TCK_OK) {
        log_warn("saves resume with step %" PRIu64, worker->step);
        worker->told = (struct error){0};
    }
    worker->state = SAVE_IDLE;
    pthread_cond_broadcast(&worker->idle);
    pthread_mutex_unlock(&worker->lock);
}

/* Logs each cause once. Agents mostly refuse for lack of room, which may come and go with every step. */
static void log_skipped(struct snapshot_worker *worker, uint64_t step, const struct error *why)
{
    if (why->code == TCK_ERR_BUSY) {
        if (log_limit_pass(&worker->refusals)) {
            log_info("step %" PRIu64 " is not saved: %s", step, why->text);
        }
    } else if (why->code == TCK_ERR_DENIED && worker->told.code != TCK_ERR_DENIED) {
        log_error("step %" PRIu64 " and all after it are not saved: %s", step, why->text);
        worker->told = *why;
    } else if (why->code != TCK_ERR_DENIED && strcmp(why->text, worker->told.text) != 0) {
        log_warn("saves are skipped, the first is step %" PRIu64 ": %s", step, why->text);
        worker->told = *why;
    }
}

/* With the lock held. */
static bool comes_again(const struct snapshot_worker *worker, const struct error *why)
{
    bool not_yet = why->code == TCK_ERR_NOSPC || why->code == TCK_ERR_UNREACHABLE || why->code == TCK_ERR_TIMEDOUT;

    return worker->to == SAVE_LAST && not_yet && worker_abandoned(worker) == NULL;
}

/* With the lock held. */
static void note_skipped(struct snapshot_worker *worker, uint64_t step, const struct error *why)
{
    worker->failed_step = step;
    worker->failure = *why;
    if (!comes_again(worker, why)) {
        log_skipped(worker, step, why);
        worker->counts.skipped++;
    }
}

static void finish_skipped(struct snapshot_worker *worker, const struct error *why)
{
    pthread_mutex_lock(&worker->lock);
    note_skipped(worker, worker->step, why);
    worker->agent_hung = why->code == TCK_ERR_TIMEDOUT;
    worker->hung_beat = atomic_load(&worker->session->shared->agent_beat);
    worker->state = SAVE_IDLE;
    pthread_cond_broadcast(&worker->idle);
    pthread_mutex_unlock(&worker->lock);
}

/* ---- one snapshot (session locked) --------------------------------------------------------------------------- */

static void send_step(struct snapshot_worker *worker, enum message_type type, uint64_t number)
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
            worker->images[n] = (struct device_image){i, shard->pinned, slot_image(shard, grant->slots[n])};
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

/* Releases the trainer from its fence. */
static void release(struct snapshot_worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    worker->released = true;
    pthread_cond_broadcast(&worker->idle);
    pthread_mutex_unlock(&worker->lock);
}

/* Goes on even if the agent dies meanwhile: the slots outlive it, and its successor finds them sealed. Also on failure
 * nothing writes into the slots any more when it returns. */
static tck_status_t copy_shards(struct snapshot_worker *worker, const struct msg_grant *grant, uint64_t *bytes_out,
                                struct error *err)
{
    const struct device_image *images = worker->images;

    prepare_slots(worker, grant);
    tck_status_t status = devices_save(worker->devices, images, grant->count, err);
    if (status == TCK_OK) {
        *bytes_out = bytes_of(worker->layout, images, grant->count);
        release(worker);
        status = device_digests_make(worker->devices, worker->slots, worker->layout, images, grant->count, err);
    }
    if (status == TCK_OK) {
        device_digests_send(worker->session, worker->slots, worker->step);
    }
    tck_status_t finished = devices_finish(worker->devices, status == TCK_OK ? err : NULL);
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
        send_step(worker, MSG_ABANDON, worker->step); /* a grant may still arrive; it will not be used */
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
    send_step(worker, status == TCK_OK ? MSG_SEAL : MSG_ABANDON, worker->step);
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
        finish_copied(worker, bytes);
    } else {
        finish_skipped(worker, &err);
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
    send_step(worker, MSG_ABANDON, worker->step);
    pthread_mutex_unlock(&worker->session->lock);
    finish_skipped(worker, &worker->given_up);
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
        finish_skipped(worker, &err);
        return;
    }
    pthread_mutex_lock(&worker->lock);
    worker->owed_step = status == TCK_ERR_BUSY ? 0 : worker->step;
    worker->state = SAVE_IDLE;
    pthread_cond_broadcast(&worker->idle);
    pthread_mutex_unlock(&worker->lock);
}

static void work(struct snapshot_worker *worker)
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

/* ---- the thread ---------------------------------------------------------------------------------------------- */

static bool should_stop(struct snapshot_worker *worker)
{
    bool stop;

    pthread_mutex_lock(&worker->lock);
    stop = worker->stop && worker->state == SAVE_IDLE;
    pthread_mutex_unlock(&worker->lock);
    return stop;
}

/* Resends what the agent that died may not have received. The messages are idempotent. */
static void resend_state(struct snapshot_worker *worker)
{
    if (worker->sealed_step > 0) {
        send_step(worker, MSG_SEAL, worker->sealed_step);
    }
    if (worker->asked_step > worker->sealed_step) {
        send_step(worker, MSG_ABANDON, worker->asked_step); /* its slots, if it has any, are not being filled */
    }
}

static void note_state_lost(struct snapshot_worker *worker, bool state_lost)
{
    pthread_mutex_lock(&worker->lock);
    worker->state_lost = state_lost;
    pthread_mutex_unlock(&worker->lock);
}

static tck_status_t reconnect(struct snapshot_worker *worker, struct error *err)
{
    struct msg_segments segments;
    tck_status_t status;

    pthread_mutex_lock(&worker->session->lock);
    status = session_return(worker->session, &segments, err);
    if (status == TCK_OK) {
        status = slots_adopt(worker->slots, worker->session, worker->layout, &segments, err);
    }
    failpoint(comeback, greeted);
    if (status == TCK_OK) {
        resend_state(worker);
        failpoint(comeback, told);
        atomic_store(&worker->session->connected, true);
    } else {
        session_disconnect(worker->session);
    }
    note_state_lost(worker, session_has_other_agent(worker->session));
    pthread_mutex_unlock(&worker->session->lock);
    return status;
}

/* True if the agent hung up. Answers to requests of the trainer's thread do not wake this one. */
static bool wait_for_work(struct snapshot_worker *worker, int timeout_ms)
{
    bool connected = atomic_load(&worker->session->connected);
    struct pollfd fds[2] = {{.fd = worker->wake_fd, .events = POLLIN},
                            {.fd = connected ? worker->session->fd : -1, .events = POLLRDHUP}};
    uint64_t count;

    if (poll(fds, 2, timeout_ms) > 0 && fds[0].revents != 0 && read(worker->wake_fd, &count, sizeof(count)) < 0) {
        log_debug("eventfd: %m"); /* another read was faster, which is harmless */
    }
    return fds[1].revents != 0;
}

/* What was requested for a step after it was saved is not in its slots' headers, and may be lost with a coordinator. */
static void owe_again(struct snapshot_worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    if (worker->work == WORK_TO_STORAGE && worker->state != SAVE_COPYING) {
        worker->owed_step = worker->storage_step;
    }
    pthread_mutex_unlock(&worker->lock);
}

static void lose_agent(struct snapshot_worker *worker)
{
    log_warn("rank %u: lost the agent connection; reconnecting", worker->session->rank);
    pthread_mutex_lock(&worker->session->lock);
    session_disconnect(worker->session);
    pthread_mutex_unlock(&worker->session->lock);
    owe_again(worker);
}

static bool has_snapshot(struct snapshot_worker *worker)
{
    bool copying;

    pthread_mutex_lock(&worker->lock);
    copying = worker->state == SAVE_COPYING;
    pthread_mutex_unlock(&worker->lock);
    return copying;
}

static void note_agent_gone(struct snapshot_worker *worker, bool agent_gone)
{
    pthread_mutex_lock(&worker->lock);
    worker->agent_gone = agent_gone;
    pthread_mutex_unlock(&worker->lock);
}

/* Without a supervisor something else, such as systemd, may restart the agent, and need a moment for it. */
static bool is_agent_gone(struct snapshot_worker *worker)
{
    uint64_t now_ms = clock_ms();

    if (!agent_is_nowhere(&worker->session->config)) {
        worker->nowhere_ms = 0;
        return false;
    }
    worker->nowhere_ms = worker->nowhere_ms == 0 ? now_ms : worker->nowhere_ms;
    return now_ms - worker->nowhere_ms >= FORSAKEN_MS;
}

/* With the lock held. */
static void hand_over(struct snapshot_worker *worker, uint64_t step, enum save_to to)
{
    worker->step = step;
    worker->to = to;
    worker->storage_step = to != SAVE_TO_MEMORY ? step : worker->storage_step;
    worker->deadline_ms = clock_ms() + worker->session->config.block_time_ms;
    worker->released = worker->copied = false;
    worker->verdict = worker->confirms && worker->work == WORK_SAVE ? VERDICT_PENDING : VERDICT_SEAL;
    worker->state = SAVE_COPYING;
}

/* Sends the drain request that came while the agent was away. */
static void send_owed(struct snapshot_worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    if (worker->owed_step > 0 && worker->state != SAVE_COPYING) {
        worker->work = WORK_TO_STORAGE;
        hand_over(worker, worker->owed_step, SAVE_TO_STORAGE);
        worker->owed_step = 0;
    }
    pthread_mutex_unlock(&worker->lock);
}

/* One attempt to reconnect; returns the pause before the next. */
static int try_return(struct snapshot_worker *worker, int pause_ms)
{
    struct error err = {0};

    if (reconnect(worker, &err) == TCK_OK) {
        worker->nowhere_ms = 0;
        note_agent_gone(worker, false);
        send_owed(worker);
        return RETURN_FIRST_MS;
    }
    note_agent_gone(worker, is_agent_gone(worker));
    log_debug("rank %u: cannot reconnect to the agent yet: %s", worker->session->rank, err.text);
    return pause_ms * 2 > RETURN_LAST_MS ? RETURN_LAST_MS : pause_ms * 2;
}

static void *saver_main(void *arg)
{
    struct snapshot_worker *worker = arg;
    int pause_ms = RETURN_FIRST_MS;

    while (!should_stop(worker)) {
        bool connected = atomic_load(&worker->session->connected);

        if (has_snapshot(worker)) {
            work(worker);
            continue;
        }
        if (wait_for_work(worker, connected ? -1 : pause_ms)) {
            lose_agent(worker);
        } else if (!connected && !has_snapshot(worker)) {
            pause_ms = try_return(worker, pause_ms);
        }
    }
    return NULL;
}

void worker_init(struct snapshot_worker *worker)
{
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->idle, NULL);
}

void worker_free(struct snapshot_worker *worker)
{
    pthread_cond_destroy(&worker->idle);
    pthread_mutex_destroy(&worker->lock);
}

tck_status_t worker_start(struct snapshot_worker *worker, struct session *session, const struct layout *layout,
                          struct slots *slots, const struct devices *devices, struct error *err)
{
    int rc;

    pthread_mutex_lock(&worker->lock);
    memset(worker, 0, offsetof(struct snapshot_worker, lock));
    worker->session = session;
    worker->layout = layout;
    worker->slots = slots;
    worker->devices = devices;
    pthread_mutex_unlock(&worker->lock);
    worker->images = calloc(layout->shard_count + (size_t)1, sizeof(*worker->images));
    if (worker->images == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the copies of %u shards", layout->shard_count);
    }
    worker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (worker->wake_fd < 0) {
        rc = errno;
        free(worker->images);
        errno = rc;
        return error_set(err, status_of_errno(rc), "create an eventfd: %m");
    }
    rc = thread_start(&worker->thread, saver_main, worker);
    if (rc != 0) {
        close(worker->wake_fd);
        free(worker->images);
        errno = rc;
        return error_set(err, status_of_errno(rc), "start the snapshot thread: %m");
    }
    worker->running = true;
    return TCK_OK;
}

static void wake(struct snapshot_worker *worker)
{
    uint64_t one = 1;

    if (write(worker->wake_fd, &one, sizeof(one)) < 0) {
        log_debug("eventfd: %m"); /* full: the thread is awake */
    }
}

void worker_stop(struct snapshot_worker *worker)
{
    if (!worker->running) {
        return;
    }
    worker_wait(worker);
    atomic_store(&worker->session->stopping, true);
    pthread_mutex_lock(&worker->lock);
    worker->stop = true;
    pthread_mutex_unlock(&worker->lock);
    wake(worker);
    pthread_join(worker->thread, NULL);
    atomic_store(&worker->session->stopping, false);
    close(worker->wake_fd);
    free(worker->images);
    worker->images = NULL;
    worker->running = false;
}

/* ---- the trainer's side -------------------------------------------------------------------------------------- */

const struct error *worker_abandoned(const struct snapshot_worker *worker)
{
    static const struct error agent_gone = {
        TCK_ERR_UNREACHABLE, "agent and supervisor of this node are gone, and its memory with them: nothing is "
                             "saved here, and nothing commits, until the job is started again"};
    static const struct error state_lost = {
        TCK_ERR_UNREACHABLE, "the agent of this node restarted without its state, and its memory is lost: nothing is "
                             "saved here, and nothing commits, until the job is started again"};

    if (atomic_load(&worker->session->connected)) {
        return NULL;
    }
    return worker->state_lost ? &state_lost : worker->agent_gone ? &agent_gone : NULL;
}

/* Returns why no snapshot can begin now, or NULL. A hung agent costs the block time once, not at every save. */
static const struct error *obstacle(const struct snapshot_worker *worker)
{
    static const struct error gone = {TCK_ERR_UNREACHABLE, "the agent of this node has ended; saves resume as soon as "
                                                           "its supervisor has restarted it"};
    static const struct error hung = {TCK_ERR_TIMEDOUT, "the agent of this node does not answer"};

    if (!atomic_load(&worker->session->connected)) {
        const struct error *agent_gone = worker_abandoned(worker);

        return agent_gone != NULL ? agent_gone : &gone;
    }
    return worker->agent_hung && atomic_load(&worker->session->shared->agent_beat) == worker->hung_beat ? &hung : NULL;
}

/* Checks whether a snapshot may begin; *why_out says why not. With the lock held. */
static tck_status_t may_begin(const struct snapshot_worker *worker, struct error *why_out)
{
    const struct error *why = obstacle(worker);

    if (session_term_over(worker->session, why_out) != TCK_OK) {
        return TCK_ERR_DENIED;
    }
    if (why != NULL) {
        *why_out = *why;
        return why->code;
    }
    return worker->work == WORK_SAVE ? devices_mark(worker->devices, why_out) : TCK_OK;
}

/* Marks the snapshot as begun, or as skipped; with the lock held. */
static tck_status_t enter(struct snapshot_worker *worker, uint64_t step, enum save_to to, bool *started_out,
                          struct error *why_out)
{
    bool saved = worker->begun_step == step && worker->failed_step != step;
    bool again = to == SAVE_LAST && worker->failed_step == step;
    tck_status_t status;

    worker->to = to;
    worker->work = saved ? WORK_TO_STORAGE : WORK_SAVE;
    status = may_begin(worker, why_out);
    if (status == TCK_ERR_INVAL) {
        return status;
    }
    worker->begun_step = step > worker->begun_step ? step : worker->begun_step;
    if (saved && status != TCK_OK && status != TCK_ERR_DENIED) {
        worker->owed_step = worker->storage_step = step;
        *started_out = true;
        return TCK_OK;
    }
    if (status != TCK_OK) {
        note_skipped(worker, step, why_out);
        *started_out = false;
        return TCK_OK;
    }
    worker->failed_step = worker->failed_step == step ? 0 : worker->failed_step; /* it is no longer skipped */
    worker->counts.started += !again;
    hand_over(worker, step, to);
    *started_out = true;
    return TCK_OK;
}

tck_status_t worker_begin(struct snapshot_worker *worker, uint64_t step, enum save_to to, bool *started_out,
                          struct error *why)
{
    tck_status_t status = TCK_ERR_BUSY;
    bool started = false;

    pthread_mutex_lock(&worker->lock);
    if (worker->state != SAVE_COPYING) {
        status = enter(worker, step, to, &started, why);
    }
    pthread_mutex_unlock(&worker->lock);
    if (started) {
        wake(worker);
    }
    if (status == TCK_OK) {
        *started_out = started;
    }
    return status;
}

bool worker_may_begin_again(struct snapshot_worker *worker, uint64_t step)
{
    bool may;

    pthread_mutex_lock(&worker->lock);
    may = worker->begun_step == step && worker->failed_step == step && comes_again(worker, &worker->failure);
    pthread_mutex_unlock(&worker->lock);
    return may;
}

void worker_note_skipped(struct snapshot_worker *worker, uint64_t step, const struct error *why)
{
    pthread_mutex_lock(&worker->lock);
    bool under_way = worker->state == SAVE_COPYING && worker->step == step; /* the same step was requested twice */

    if (step >= worker->begun_step && !under_way) {
        worker->begun_step = step;
        note_skipped(worker, step, why);
    } else {
        worker->counts.skipped++;
    }
    pthread_mutex_unlock(&worker->lock);
}

void worker_give_up(struct snapshot_worker *worker, uint64_t step, const struct error *why)
{
    bool handed_over;

    pthread_mutex_lock(&worker->lock);
    handed_over = worker->state != SAVE_COPYING && obstacle(worker) == NULL;
    if (handed_over) {
        worker->begun_step = step;
        worker->given_up = *why;
        worker->work = WORK_GIVE_UP;
        hand_over(worker, step, SAVE_TO_MEMORY);
    }
    pthread_mutex_unlock(&worker->lock);
    if (handed_over) {
        wake(worker);
    } else {
        worker_note_skipped(worker, step, why);
    }
}

enum save_order worker_order(struct snapshot_worker *worker, uint64_t step, uint64_t *newest_out)
{
    enum save_order order = ORDER_NEWER;

    pthread_mutex_lock(&worker->lock);
    *newest_out = worker->begun_step;
    if (step < worker->begun_step) {
        order = ORDER_OLDER;
    } else if (step == worker->begun_step && worker->failed_step != step) {
        order = ORDER_SAVED;
    }
    pthread_mutex_unlock(&worker->lock);
    return order;
}

/* With the lock held. */
static void settle(struct snapshot_worker *worker, const char *why_not)
{
    if (worker->state != SAVE_COPYING || worker->verdict != VERDICT_PENDING) {
        return;
    }
    worker->verdict = why_not == NULL ? VERDICT_SEAL : VERDICT_GIVE_UP;
    snprintf(worker->verdict_why, sizeof(worker->verdict_why), "%s", why_not == NULL ? "" : why_not);
    pthread_cond_broadcast(&worker->idle);
}

static struct timespec in_ms(uint32_t ms)
{
    struct timespec then;

    clock_gettime(CLOCK_MONOTONIC, &then);
    then.tv_sec += ms / 1000;
    then.tv_nsec += (long)(ms % 1000) * 1000000;
    then.tv_sec += then.tv_nsec / 1000000000;
    then.tv_nsec %= 1000000000;
    return then;
}

bool worker_wait_for(struct snapshot_worker *worker, uint32_t timeout_ms)
{
    struct timespec deadline = in_ms(timeout_ms);
    int rc = 0;
    bool idle;

    pthread_mutex_lock(&worker->lock);
    while (worker->state == SAVE_COPYING && rc == 0) {
        if (worker->copied) {
            settle(worker, UNCONFIRMED);
        }
        rc = pthread_cond_clockwait(&worker->idle, &worker->lock, CLOCK_MONOTONIC, &deadline);
    }
    idle = worker->state != SAVE_COPYING;
    pthread_mutex_unlock(&worker->lock);
    return idle;
}

void worker_confirm(struct snapshot_worker *worker, uint64_t step, const char *why_not)
{
    pthread_mutex_lock(&worker->lock);
    if (worker->step == step) { /* a late confirmation must not count for the snapshot begun meanwhile */
        settle(worker, why_not);
    }
    while (worker->state == SAVE_COPYING && worker->copied && worker->step == step) {
        pthread_cond_wait(&worker->idle, &worker->lock);
    }
    pthread_mutex_unlock(&worker->lock);
}

tck_status_t worker_await_copied(struct snapshot_worker *worker, int timeout_ms, uint64_t *step_out)
{
    struct timespec until = in_ms((uint32_t)timeout_ms);
    tck_status_t status;
    int rc = 0;

    pthread_mutex_lock(&worker->lock);
    while (worker->state == SAVE_COPYING && !worker->copied && worker->verdict == VERDICT_PENDING && rc == 0) {
        rc = pthread_cond_clockwait(&worker->idle, &worker->lock, CLOCK_MONOTONIC, &until);
    }
    if (worker->state != SAVE_COPYING || worker->verdict != VERDICT_PENDING) {
        status = TCK_ERR_NOENT;
    } else {
        status = worker->copied ? TCK_OK : TCK_ERR_TIMEDOUT;
        *step_out = worker->step;
    }
    pthread_mutex_unlock(&worker->lock);
    return status;
}

void worker_wait(struct snapshot_worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    while (worker->state == SAVE_COPYING) {
        if (worker->copied) {
            settle(worker, UNCONFIRMED);
        }
        pthread_cond_wait(&worker->idle, &worker->lock);
    }
    pthread_mutex_unlock(&worker->lock);
}

tck_status_t worker_fence(struct snapshot_worker *worker, struct error *err)
{
    bool under_way;

    pthread_mutex_lock(&worker->lock);
    while (worker->state == SAVE_COPYING && !worker->released) {
        pthread_cond_wait(&worker->idle, &worker->lock);
    }
    under_way = worker->state == SAVE_COPYING && !worker->copied;
    pthread_mutex_unlock(&worker->lock);
    if (under_way) {
        tck_status_t status = devices_hold(worker->devices, err);

        if (status == TCK_OK || status == TCK_ERR_INVAL) {
            return status;
        }
    }
    pthread_mutex_lock(&worker->lock);
    while (worker->state == SAVE_COPYING && !(worker->copied && worker->verdict == VERDICT_PENDING)) {
        pthread_cond_wait(&worker->idle, &worker->lock); /* a failing device also ends this wait soon */
    }
    pthread_mutex_unlock(&worker->lock);
    return TCK_OK;
}

bool worker_idle(struct snapshot_worker *worker)
{
    return !has_snapshot(worker);
}
