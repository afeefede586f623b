/* SPDX-License-Identifier: Apache-2.0
 * A few threads for hashing and copying. A job runs in a pool thread, its done function afterwards in the loop's. */
#ifndef TCK_BASE_POOL_H
#define TCK_BASE_POOL_H

#include "base/loop.h"

#include <stddef.h>

struct pool;

must_check tck_status_t pool_new(struct loop *loop, int threads, struct pool **out, struct error *err);
/* Adds a thread in place of one that hangs in a job; false if there are too many already. Threads that return from
 * such a job stay in the pool. Called from the loop's thread. */
bool pool_grow(struct pool *pool);
/* Jobs that wait for a thread. Safe from any thread. */
size_t pool_waiting(struct pool *pool);
/* Waits for running jobs; jobs not begun are dropped, their done functions still run with canceled set. All done
 * functions have run when it returns. Called from the loop's thread, but not by a done function. */
void pool_free(struct pool *pool);

typedef void pool_work_fn(void *ctx);
typedef void pool_done_fn(void *ctx, bool canceled);
/* ctx stays the caller's; done is called exactly once unless the submit itself failed. Jobs begin in the order of their
 * submits. Safe from any thread; TCK_ERR_CANCELED from the moment pool_free has begun. */
must_check tck_status_t pool_submit(struct pool *pool, pool_work_fn *work, pool_done_fn *done, void *ctx);

#endif
