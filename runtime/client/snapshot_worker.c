/* SPDX-License-Identifier: Apache-2.0
 * What the trainer's thread asks of the snapshot worker: start and stop, begin, confirm, wait. */
#include "client/snapshot_worker.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "client/slot_copy.h"
#include "client/snapshot_outcome.h"
#include "client/snapshot_thread.h"
#include "client/term_over.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static const char UNCONFIRMED[] = "no call of tck_confirm said that its records did not change while they were copied";

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
    rc = thread_start(&worker->thread, snapshot_thread_main, worker);
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
        snapshot_note_skipped(worker, step, why_out);
        *started_out = false;
        return TCK_OK;
    }
    worker->failed_step = worker->failed_step == step ? 0 : worker->failed_step; /* it is no longer skipped */
    worker->counts.started += !again;
    snapshot_hand_over(worker, step, to);
    *started_out = true;
    return TCK_OK;
}

tck_status_t worker_begin(struct snapshot_worker *worker, uint64_t step, enum save_to to, bool *started_out,
                          struct error *why)
{
    tck_status_t status = TCK_ERR_BUSY;
    bool started = false, saves = false;

    pthread_mutex_lock(&worker->lock);
    if (worker->state != SAVE_COPYING) {
        status = enter(worker, step, to, &started, why);
        saves = worker->work == WORK_SAVE;
    }
    pthread_mutex_unlock(&worker->lock);
    if (started) {
        wake(worker);
    }
    /* Also if this rank stores nothing: the thread may connect again now, and then it may have to store. */
    if (started && saves && devices_await_eager(worker->devices)) {
        copier_help(worker->devices->copier, COPYING_EAGER_OVER);
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
    may = worker->begun_step == step && worker->failed_step == step &&
          snapshot_may_succeed_later(worker, &worker->failure);
    pthread_mutex_unlock(&worker->lock);
    return may;
}

void worker_note_skipped(struct snapshot_worker *worker, uint64_t step, const struct error *why)
{
    pthread_mutex_lock(&worker->lock);
    bool under_way = worker->state == SAVE_COPYING && worker->step == step; /* the same step was requested twice */

    if (step >= worker->begun_step && !under_way) {
        worker->begun_step = step;
        snapshot_note_skipped(worker, step, why);
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
        snapshot_hand_over(worker, step, SAVE_TO_MEMORY);
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

    copier_help(worker->devices->copier, COPYING_OVER);
    pthread_mutex_lock(&worker->lock);
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
    return !snapshot_is_under_way(worker);
}
