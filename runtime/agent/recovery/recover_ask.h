/* SPDX-License-Identifier: Apache-2.0
 * What exists in memory, for a recovery: inventories of this and other agents. */
#ifndef TCK_AGENT_RECOVER_ASK_H
#define TCK_AGENT_RECOVER_ASK_H

#include "agent/state/wire.h"

struct recoveries;

/* This agent's inventory as a wire message; TCK_ERR_BUSY: ask again later. */
must_check tck_status_t recover_make_inventory(const struct recoveries *rs, const struct wire_ask *ask,
                                               struct writer *w);

#endif
