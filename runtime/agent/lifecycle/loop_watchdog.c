/* SPDX-License-Identifier: Apache-2.0
 * Calls a function if an operation takes too long, for the few places where the agent's only thread may block (main.c).
 * A thread sleeps until it is stopped or the time has elapsed. */
#include "agent/lifecycle/loop_watchdog.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

struct watchdog {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t stopped_now;
    bool stopped;
    struct timespec end;
    void (*late)(void *ctx);
    void *ctx;
};

static void *watch(void *arg)
{
    struct watchdog *w = arg;
    int rc = 0;
    pthread_mutex_lock(&w->lock);
    while (!w->stopped && rc != ETIMEDOUT) {
        rc = pthread_cond_clockwait(&w->stopped_now, &w->lock, CLOCK_MONOTONIC, &w->end);
    }
    bool late = !w->stopped;
    pthread_mutex_unlock(&w->lock);
    if (late) {
        w->late(w->ctx);
    }
    return NULL;
}

struct watchdog *watchdog_start(uint32_t ms, void (*late)(void *ctx), void *ctx)
{
    struct watchdog *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        return NULL;
    }
    w->late = late;
    w->ctx = ctx;
    clock_gettime(CLOCK_MONOTONIC, &w->end);
    uint64_t ns = (uint64_t)w->end.tv_nsec + (uint64_t)ms * 1000000;
    w->end.tv_sec += (time_t)(ns / 1000000000);
    w->end.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->stopped_now, NULL);
    if (pthread_create(&w->thread, NULL, watch, w) != 0) {
        pthread_cond_destroy(&w->stopped_now);
        pthread_mutex_destroy(&w->lock);
        free(w);
        return NULL;
    }
    return w;
}

void watchdog_stop(struct watchdog *w)
{
    if (w == NULL) {
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->stopped = true;
    pthread_cond_signal(&w->stopped_now);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->stopped_now);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
