/* SPDX-License-Identifier: Apache-2.0
 * Queries on the state of a recovery that several of its files use. */
#include "recovery/recovery_state.h"

void recovery_emit_simple(struct recovery *r, enum recovery_action_type type)
{
    struct recovery_action action = {.type = type, .node = NONE32, .shard = NONE32, .version = r->plan.version};
    r->emit(r->ctx, &action);
}

uint32_t recovery_lost_member(const struct recovery *r)
{
    for (uint32_t i = 0; i < r->setup.world->node_count; i++) {
        if (r->down[i]) {
            return i;
        }
    }
    return NONE32;
}
