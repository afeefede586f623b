/* SPDX-License-Identifier: Apache-2.0
 * See activity.h. */
#include "client/activity.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/message.h"
#include "base/thread.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LOG_EVERY_S   10
#define STILL_SAID_MS 5000 /* without any progress for so long, the text says so */
#define TEXT_BYTES    256

void activity_init(struct activity *a)
{
    pthread_condattr_t attributes;
    pthread_mutex_init(&a->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&a->ends, &attributes);
    pthread_condattr_destroy(&attributes);
}

void activity_free(struct activity *a)
{
    pthread_cond_destroy(&a->ends);
    pthread_mutex_destroy(&a->lock);
}

/* ---- what is under way --------------------------------------------------------------------------------------- */

static void begin_phase(struct activity *a, const char *what, uint64_t total_bytes, const struct shared_status *shared)
{
    pthread_mutex_lock(&a->lock);
    if (a->call != NULL) {
        a->what = what;
        a->moved_ms = clock_ms();
        a->total_bytes = total_bytes;
        a->seen_bytes = 0;
        a->shared = shared;
        atomic_store(&a->done_bytes, 0);
    }
    pthread_mutex_unlock(&a->lock);
}

void activity_phase(struct activity *a, const char *what, uint64_t total_bytes)
{
    begin_phase(a, what, total_bytes, NULL);
}

void activity_of_agent(struct activity *a, const char *what, const struct shared_status *shared)
{
    begin_phase(a, what, 0, shared);
}

void activity_add(struct activity *a, uint64_t bytes)
{
    atomic_fetch_add_explicit(&a->done_bytes, bytes, memory_order_relaxed);
}

/* With the lock held. */
static void look_here(struct activity *a, tck_progress_t *out)
{
    out->done_bytes = atomic_load_explicit(&a->done_bytes, memory_order_relaxed);
    out->total_bytes = a->total_bytes;
    if (out->done_bytes != a->seen_bytes) {
        a->seen_bytes = out->done_bytes;
        a->moved_ms = clock_ms();
    }
}

/* The page may still have what an earlier wait left there. */
static void look_at_agent(struct activity *a, tck_progress_t *out)
{
    uint64_t moved_ms = atomic_load_explicit(&a->shared->work_moved_ms, memory_order_relaxed);
    if (moved_ms >= a->moved_ms) {
        a->moved_ms = moved_ms;
        out->done_bytes = atomic_load_explicit(&a->shared->work_done_bytes, memory_order_relaxed);
        out->total_bytes = atomic_load_explicit(&a->shared->work_total_bytes, memory_order_relaxed);
    }
}

bool activity_look(struct activity *a, tck_progress_t *out)
{
    uint64_t now_ms = clock_ms();
    bool any;
    *out = (tck_progress_t){.struct_size = out->struct_size};
    pthread_mutex_lock(&a->lock);
    any = a->call != NULL;
    if (any) {
        out->call = a->call;
        out->what = a->what;
        out->shown = a->shown;
        if (a->shared != NULL) {
            look_at_agent(a, out);
        } else {
            look_here(a, out);
        }
        out->age_ms = now_ms - a->begun_ms;
        out->still_ms = now_ms > a->moved_ms ? now_ms - a->moved_ms : 0;
    }
    pthread_mutex_unlock(&a->lock);
    return any;
}

void activity_text(const tck_progress_t *p, double bytes_per_second, char *out, size_t cap)
{
    int len = snprintf(out, cap, "%s for %" PRIu64 " s: %s", p->call, p->age_ms / 1000, p->what);
    if (p->total_bytes > 0 && len > 0 && (size_t)len < cap) {
        len += snprintf(out + len, cap - (size_t)len, ", %.2f of %.2f GB", (double)p->done_bytes / 1e9,
                        (double)p->total_bytes / 1e9);
    }
    if (bytes_per_second > 0 && len > 0 && (size_t)len < cap) {
        len += snprintf(out + len, cap - (size_t)len, ", %.2f GB/s", bytes_per_second / 1e9);
    }
    if (p->still_ms >= STILL_SAID_MS && len > 0 && (size_t)len < cap) {
        snprintf(out + len, cap - (size_t)len, ", without progress for %" PRIu64 " s", p->still_ms / 1000);
    }
}

/* ---- the log ------------------------------------------------------------------------------------------------- */

/* True: the call is over. */
static bool wait_for_end(struct activity *a)
{
    struct timespec until;
    int rc = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LOG_EVERY_S;
    pthread_mutex_lock(&a->lock);
    while (!a->over && rc == 0) {
        rc = pthread_cond_timedwait(&a->ends, &a->lock, &until);
    }
    bool over = a->over;
    pthread_mutex_unlock(&a->lock);
    return over;
}

/* The rate is that since the last line, of the same phase. */
static double rate_since(const tck_progress_t *before, const tck_progress_t *now)
{
    bool same = before->what == now->what && now->done_bytes > before->done_bytes;
    return same ? (double)(now->done_bytes - before->done_bytes) / LOG_EVERY_S : 0;
}

static void *log_progress(void *ctx)
{
    struct activity *a = ctx;
    tck_progress_t before = {0}, now = {0};
    char text[TEXT_BYTES];
    while (!wait_for_end(a)) {
        if (activity_look(a, &now)) {
            activity_text(&now, rate_since(&before, &now), text, sizeof(text));
            log_info("%s", text);
        }
        before = now;
    }
    return NULL;
}

void activity_begin(struct activity *a, const char *call, bool shown, bool logged)
{
    pthread_mutex_lock(&a->lock);
    a->call = call;
    a->begun_ms = clock_ms();
    a->shown = shown;
    a->over = false;
    pthread_mutex_unlock(&a->lock);
    activity_phase(a, "begins", 0);
    a->logged = shown && logged && thread_start(&a->logger, log_progress, a) == 0; /* without a thread, no lines */
}

void activity_end(struct activity *a)
{
    pthread_mutex_lock(&a->lock);
    a->call = NULL;
    a->shared = NULL;
    a->over = true;
    pthread_cond_broadcast(&a->ends);
    pthread_mutex_unlock(&a->lock);
    if (a->logged) {
        pthread_join(a->logger, NULL);
        a->logged = false;
    }
}
