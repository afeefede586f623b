/* SPDX-License-Identifier: Apache-2.0
 * What the thread does for one step. */
#ifndef TCK_CLIENT_SNAPSHOT_COPY_H
#define TCK_CLIENT_SNAPSHOT_COPY_H

#include "client/snapshot_state.h"

/* Does the work that snapshot_hand_over has given it. */
void snapshot_run(struct snapshot_worker *worker);
/* Reports a step to the agent. With the session locked. */
void snapshot_report_step(struct snapshot_worker *worker, enum message_type type, uint64_t number);

#endif
