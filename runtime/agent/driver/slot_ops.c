/* SPDX-License-Identifier: Apache-2.0
 * Counts operations on slots. */
#include "agent/driver/slot_ops.h"

void slot_op_begin(struct agent *agent)
{
    agent->ops++;
}

void slot_op_end(struct agent *agent)
{
    agent->ops--;
    if (agent->ops == 0) {
        agent->hooks->slots_idle(agent);
    }
}
