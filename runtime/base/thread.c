/* SPDX-License-Identifier: Apache-2.0
 * Starts threads; a thread inherits the signals that are blocked where it is created. */
#include "base/thread.h"

#include <signal.h>

static int start(pthread_t *thread_out, const pthread_attr_t *attr, void *(*run)(void *ctx), void *ctx)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(thread_out, attr, run, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

int thread_start(pthread_t *thread_out, void *(*run)(void *ctx), void *ctx)
{
    return start(thread_out, NULL, run, ctx);
}

int thread_start_detached(void *(*run)(void *ctx), void *ctx)
{
    pthread_t thread;
    pthread_attr_t attr;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int rc = start(&thread, &attr, run, ctx);
    pthread_attr_destroy(&attr);
    return rc;
}
