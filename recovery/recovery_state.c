/* SPDX-License-Identifier: Apache-2.0
 * What several files of the recovery machine use: its actions, and queries on its state. */
#include "recovery/recovery_state.h"

#include <stdlib.h>

#define ACTIONS_FIRST    64
#define ACTIONS_RESERVED 16 /* for those that are no fetches; a step adds at most three */

tck_status_t recovery_actions_init(struct recovery_actions *actions)
{
    struct recovery_action *items = malloc(ACTIONS_FIRST * sizeof(*items));
    if (items == NULL) {
        return TCK_ERR_NOMEM;
    }
    *actions = (struct recovery_actions){.items = items, .cap = ACTIONS_FIRST};
    return TCK_OK;
}

void recovery_actions_free(struct recovery_actions *actions)
{
    free(actions->items);
    *actions = (struct recovery_actions){0};
}

static bool has_room(struct recovery_actions *actions, uint32_t reserved)
{
    if (actions->count + reserved < actions->cap) {
        return true;
    }
    struct recovery_action *grown = realloc(actions->items, 2 * (size_t)actions->cap * sizeof(*grown));
    if (grown == NULL) {
        return false;
    }
    actions->items = grown;
    actions->cap *= 2;
    return true;
}

void recovery_emit(struct recovery *r, enum recovery_action_type type)
{
    if (has_room(r->out, 0)) {
        r->out->items[r->out->count++] = (struct recovery_action){.type = type,
                                                                  .node = NONE32,
                                                                  .shard = NONE32,
                                                                  .newest = r->list_newest,
                                                                  .step = r->input.step,
                                                                  .version = r->plan.version};
    }
}

bool recovery_emit_fetch(struct recovery *r, const struct recovery_action *fetch)
{
    if (!has_room(r->out, ACTIONS_RESERVED)) {
        return false;
    }
    r->out->items[r->out->count++] = *fetch;
    return true;
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
