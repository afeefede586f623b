/* SPDX-License-Identifier: Apache-2.0
 * How a snapshot ended. */
#ifndef TCK_CLIENT_SNAPSHOT_OUTCOME_H
#define TCK_CLIENT_SNAPSHOT_OUTCOME_H

#include "client/snapshot_state.h"

/* Nothing is under way any more. With the lock held. */
void snapshot_end(struct snapshot_worker *worker);
void snapshot_finish_copied(struct snapshot_worker *worker, uint64_t bytes);
void snapshot_finish_skipped(struct snapshot_worker *worker, const struct error *why);
/* With the lock held. */
void snapshot_note_skipped(struct snapshot_worker *worker, uint64_t step, const struct error *why);
/* Whether the training's last step, which was skipped for this reason, can be begun again. With the lock held. */
bool snapshot_may_succeed_later(const struct snapshot_worker *worker, const struct error *why);
/* Why the saved steps are lost: the agent does not come back with its state. NULL while it still may. With the lock
 * held. */
const struct error *worker_abandoned(const struct snapshot_worker *worker);

#endif
