/* SPDX-License-Identifier: Apache-2.0
 * Records how a snapshot ended, and logs it. */
#include "client/snapshot_outcome.h"

#include "base/log.h"
#include "client/slot_copy.h"

#include <inttypes.h>
#include <string.h>

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

void snapshot_end(struct snapshot_worker *worker)
{
    worker->state = SAVE_IDLE;
    pthread_cond_broadcast(&worker->idle);
    copier_note(worker->devices->copier, COPYING_OVER);
}

void snapshot_finish_copied(struct snapshot_worker *worker, uint64_t bytes)
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
    snapshot_end(worker);
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
bool snapshot_may_succeed_later(const struct snapshot_worker *worker, const struct error *why)
{
    bool not_yet = why->code == TCK_ERR_NOSPC || why->code == TCK_ERR_UNREACHABLE || why->code == TCK_ERR_TIMEDOUT;

    return worker->to == SAVE_LAST && not_yet && worker_abandoned(worker) == NULL;
}

/* With the lock held. */
void snapshot_note_skipped(struct snapshot_worker *worker, uint64_t step, const struct error *why)
{
    worker->failed_step = step;
    worker->failure = *why;
    if (!snapshot_may_succeed_later(worker, why)) {
        log_skipped(worker, step, why);
        worker->counts.skipped++;
    }
}

void snapshot_finish_skipped(struct snapshot_worker *worker, const struct error *why)
{
    pthread_mutex_lock(&worker->lock);
    snapshot_note_skipped(worker, worker->step, why);
    worker->agent_hung = why->code == TCK_ERR_TIMEDOUT;
    worker->hung_beat = atomic_load(&worker->session->shared->agent_beat);
    snapshot_end(worker);
    pthread_mutex_unlock(&worker->lock);
}
