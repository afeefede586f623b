/* SPDX-License-Identifier: Apache-2.0
 * Trainers whose term is over can no longer save. */
#ifndef TCK_AGENT_FENCE_H
#define TCK_AGENT_FENCE_H

#include "agent/state/context.h"

/* Notifies trainers of older terms, through their shared status pages, that this term is in force, and who has claimed
 * it.
 */
void fence_older(struct agent *agent, uint64_t term);

#endif
