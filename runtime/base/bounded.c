/* SPDX-License-Identifier: Apache-2.0
 * Each piece of work gets a thread of its own. Compared with a call to storage, starting a thread costs nothing, and
 * unlike a thread that is kept it also exists in a forked process. */
#include "base/bounded.h"

#include "base/clock.h"
#include "base/progress.h"
#include "base/thread.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

struct bounded {
    struct bounded_work work;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct progress progress;
    bool ended, left;
};

static void free_bounded(struct bounded *b)
{
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

static void *run(void *arg)
{
    struct bounded *b = arg;
    progress_begin(&b->progress);
    b->work.work(b->work.job);
    progress_end(&b->progress);
    pthread_mutex_lock(&b->lock);
    bool left = b->left;
    b->ended = true;
    pthread_cond_signal(&b->changed);
    pthread_mutex_unlock(&b->lock); /* from here on b belongs to the waiting thread, unless it has left */
    if (left) {
        b->work.drop(b->work.job);
        free_bounded(b);
    }
    return NULL;
}

static struct bounded *new_bounded(const struct bounded_work *work)
{
    struct bounded *b = calloc(1, sizeof(*b));
    pthread_condattr_t attr;
    if (b == NULL) {
        return NULL;
    }
    b->work = *work;
    b->progress.moved_ms = clock_ms();
    pthread_mutex_init(&b->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&b->changed, &attr);
    pthread_condattr_destroy(&attr);
    return b;
}

/* Returns whether the work has ended; if not, b belongs to its thread from now on. */
static bool wait_for_end(struct bounded *b, uint32_t limit_ms)
{
    uint64_t moved_ms = b->progress.moved_ms;
    pthread_mutex_lock(&b->lock);
    for (;;) {
        uint64_t last_ms = atomic_load(&b->progress.moved_ms), until_ms = last_ms + limit_ms;
        if (last_ms != moved_ms) { /* what waits for this work makes progress, too */
            moved_ms = last_ms;
            progress_moved();
        }
        if (b->ended || clock_ms() >= until_ms) {
            break;
        }
        struct timespec until = {(time_t)(until_ms / 1000), (long)(until_ms % 1000) * 1000000};
        pthread_cond_timedwait(&b->changed, &b->lock, &until);
    }
    bool ended = b->ended;
    b->left = !ended;
    pthread_mutex_unlock(&b->lock);
    return ended;
}

tck_status_t bounded_do(const struct bounded_work *work, uint32_t limit_ms, struct error *err)
{
    struct bounded *b = new_bounded(work);
    if (b == NULL) {
        work->drop(work->job);
        return error_set(err, TCK_ERR_NOMEM, "no memory for work on storage");
    }
    int rc = thread_start_detached(run, b);
    if (rc != 0) {
        free_bounded(b);
        work->drop(work->job);
        errno = rc;
        return error_set(err, status_of_errno(rc), "start a thread for work on storage: %m");
    }
    if (!wait_for_end(b, limit_ms)) {
        return error_set(err, TCK_ERR_TIMEDOUT,
                         "storage hangs: it has not answered for %" PRIu32 " ms (see storage_timeout_ms)", limit_ms);
    }
    free_bounded(b);
    return TCK_OK;
}
