/* SPDX-License-Identifier: Apache-2.0
 * The snapshot worker's thread: sleeps until the trainer begins a snapshot or the agent's connection is lost, and
 * reconnects. */
#include "client/snapshot_thread.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "client/slot_copy.h"
#include "client/snapshot_copy.h"
#include "client/spawn.h"

#include <inttypes.h>
#include <poll.h>
#include <unistd.h>

#define RETURN_FIRST_MS 50 /* pause before reconnecting to the agent, doubled each time up to */
#define RETURN_LAST_MS  2000
#define FORSAKEN_MS     5000 /* neither agent nor supervisor for this long: the agent will not be restarted */

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
        snapshot_report_step(worker, MSG_SEAL, worker->sealed_step);
    }
    if (worker->asked_step > worker->sealed_step) {
        snapshot_report_step(worker, MSG_ABANDON,
                             worker->asked_step); /* its slots, if it has any, are not being filled */
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

bool snapshot_is_under_way(struct snapshot_worker *worker)
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
void snapshot_hand_over(struct snapshot_worker *worker, uint64_t step, enum save_to to)
{
    worker->step = step;
    worker->to = to;
    worker->storage_step = to != SAVE_TO_MEMORY ? step : worker->storage_step;
    worker->deadline_ms = clock_ms() + worker->session->config.block_time_ms;
    worker->copied = false;
    worker->verdict = worker->confirms && worker->work == WORK_SAVE ? VERDICT_PENDING : VERDICT_SEAL;
    worker->state = SAVE_COPYING;
    if (worker->work == WORK_SAVE) {
        copier_note(worker->devices->copier, COPYING_BEGUN);
    }
}

/* Sends the drain request that came while the agent was away. */
static void send_owed(struct snapshot_worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    if (worker->owed_step > 0 && worker->state != SAVE_COPYING) {
        worker->work = WORK_TO_STORAGE;
        snapshot_hand_over(worker, worker->owed_step, SAVE_TO_STORAGE);
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

void *snapshot_thread_main(void *arg)
{
    struct snapshot_worker *worker = arg;
    int pause_ms = RETURN_FIRST_MS;

    while (!should_stop(worker)) {
        bool connected = atomic_load(&worker->session->connected);

        if (snapshot_is_under_way(worker)) {
            snapshot_run(worker);
            continue;
        }
        if (wait_for_work(worker, connected ? -1 : pause_ms)) {
            lose_agent(worker);
        } else if (!connected && !snapshot_is_under_way(worker)) {
            pause_ms = try_return(worker, pause_ms);
        }
    }
    return NULL;
}
