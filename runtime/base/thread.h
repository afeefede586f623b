/* SPDX-License-Identifier: Apache-2.0
 * Threads of our own inside a program of others: all signals are blocked in them, since they belong to the threads that
 * the program has for them. */
#ifndef TCK_BASE_THREAD_H
#define TCK_BASE_THREAD_H

#include "base/status.h"

#include <pthread.h>

/* Both return 0 or the number of an error, as pthread_create does. */
must_check int thread_start(pthread_t *thread_out, void *(*run)(void *ctx), void *ctx);
/* One that nobody joins. */
must_check int thread_start_detached(void *(*run)(void *ctx), void *ctx);

#endif
