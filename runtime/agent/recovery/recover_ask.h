/* SPDX-License-Identifier: Apache-2.0
 * Collects what exists in memory for a recovery: the inventories of this and other agents. */
#ifndef TCK_AGENT_RECOVER_ASK_H
#define TCK_AGENT_RECOVER_ASK_H

#include "agent/state/wire.h"

struct recoveries;
struct world;

/* This agent's inventory as a wire message; TCK_ERR_BUSY: ask again later. world: that of the asking term, whose
 * members the coordinator need not be told about; NULL if this agent does not know it. */
must_check tck_status_t recover_make_inventory(const struct recoveries *rs, const struct world *world,
                                               const struct wire_ask *ask, struct writer *w);

#endif
