/* SPDX-License-Identifier: Apache-2.0
 * Operations under way that read or write slots. A registration, which may move them, waits until there is none. */
#ifndef TCK_AGENT_SLOT_OPS_H
#define TCK_AGENT_SLOT_OPS_H

#include "agent/state/context.h"

void slot_op_begin(struct agent *agent);
/* The end of the last one is reported through hooks->slots_idle. */
void slot_op_end(struct agent *agent);

#endif
