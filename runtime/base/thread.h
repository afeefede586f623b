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

#endif
