/* SPDX-License-Identifier: Apache-2.0
 * The newest commit comes from the kept decision, too, which may know of one that this node has no copy of. What an
 * earlier base replaced is part of every inventory, since the machine that decided it may be lost before any trainer
 * has the answer. */
#include "agent/recovery/kept_inventory.h"

#include <stdio.h>

struct inventory kept_inventory(const struct hard_state *state, const struct node_info *self)
{
    const struct kept *kept = hard_state_get(state);
    struct inventory inv = {
        .node = *self, .watermark = hard_state_watermark(state), .base = kept->base, .base_term = kept->base_term};
    snprintf(inv.passed_over, sizeof(inv.passed_over), "%s", kept->passed_over);
    return inv;
}
