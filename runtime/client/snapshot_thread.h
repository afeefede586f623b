/* SPDX-License-Identifier: Apache-2.0
 * The background thread of the snapshot worker. */
#ifndef TCK_CLIENT_SNAPSHOT_THREAD_H
#define TCK_CLIENT_SNAPSHOT_THREAD_H

#include "client/snapshot_state.h"

/* Its main function; arg is the worker. */
void *snapshot_thread_main(void *arg);
bool snapshot_is_under_way(struct snapshot_worker *worker);
/* Gives the thread a step to work on. With the lock held. */
void snapshot_hand_over(struct snapshot_worker *worker, uint64_t step, enum save_to to);

#endif
