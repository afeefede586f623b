/* SPDX-License-Identifier: Apache-2.0
 * A handler that runs in each forked child. The number belongs to the process and not to a client, so it is global; a
 * process number would cost a system call at each step. */
#include "client/forks.h"
#include "base/log.h"
#include "client/log_sink.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

static _Atomic uint32_t forks;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int watched; /* what pthread_atfork returned */

static void in_child(void)
{
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
    log_after_fork();
    log_sink_after_fork();
}

static void watch(void)
{
    watched = pthread_atfork(NULL, NULL, in_child);
}

tck_status_t forks_watch(struct error *err)
{
    pthread_once(&once, watch);
    if (watched != 0) {
        errno = watched;
        return error_set(err, status_of_errno(watched), "watch for forks: %m");
    }
    return TCK_OK;
}

uint32_t forks_count(void)
{
    return atomic_load_explicit(&forks, memory_order_relaxed);
}
