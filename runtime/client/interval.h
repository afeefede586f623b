/* SPDX-License-Identifier: Apache-2.0
 * Which steps are saved: read from the shared status, where the agent may change it while training runs. */
#ifndef TCK_CLIENT_INTERVAL_H
#define TCK_CLIENT_INTERVAL_H

#include "base/message.h"

/* What the client remembers from one step to the next; zeros at first. */
struct pacer {
    uint64_t mem_steps, storage_steps; /* in force */
    uint64_t last_call_ns;             /* of pacer_tick */
    uint64_t step_ns;                  /* smoothed */
};

/* Returns what is due at this step. A change of the intervals holds from shared->interval_from_step on, the same step
 * on all ranks; for that the agent writes interval_from_step before it writes (release) the intervals. Step 0 is never
 * due: 0 stands for "none" on the shared status. */
tck_due_t pacer_due(struct pacer *pacer, const struct shared_status *shared, uint64_t step);

/* Publishes the step, when it ended, and the mean time per step in the shared status. */
void pacer_tick(struct pacer *pacer, struct shared_status *shared, uint64_t step, uint64_t now_ns);

#endif
