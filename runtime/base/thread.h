/* SPDX-License-Identifier: Apache-2.0
 * Starts our own threads inside somebody else's program. All signals are blocked in them, since signals are for the
 * threads that the program has chosen to handle them. */
#ifndef TCK_BASE_THREAD_H
#define TCK_BASE_THREAD_H

#include "base/status.h"

#include <pthread.h>

/* Both return 0 or the number of an error, as pthread_create does. */
must_check int thread_start(pthread_t *thread_out, void *(*run)(void *ctx), void *ctx);
/* A thread that nobody joins. */
must_check int thread_start_detached(void *(*run)(void *ctx), void *ctx);
/* From now on the calling thread, when it is woken, waits until a processor is free instead of preempting a thread that
 * runs (SCHED_BATCH, sched(7)); it then gets its share as before. For threads that work while the program that woke
 * them continues. Changes nothing if the program has chosen another policy than the default one, or if the system
 * refuses it. */
void thread_never_preempts(void);

#endif
