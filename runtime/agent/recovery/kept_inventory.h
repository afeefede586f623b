/* SPDX-License-Identifier: Apache-2.0
 * What an agent remembers beside its slots, for a recovery. */
#ifndef TCK_AGENT_RECOVERY_KEPT_INVENTORY_H
#define TCK_AGENT_RECOVERY_KEPT_INVENTORY_H

#include "agent/state/hard_state.h"
#include "recovery/inventory.h"

/* An inventory of this node without holdings: what the headers of slots do not say. */
struct inventory kept_inventory(const struct hard_state *state, const struct node_info *self);

#endif
