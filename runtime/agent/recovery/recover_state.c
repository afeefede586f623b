/* SPDX-License-Identifier: Apache-2.0
 * Frees the resources of a recovery. Called when it ends and when its term is replaced. */
#include "agent/recovery/recover_internal.h"

#include <stdlib.h>

void recover_forget_fetches(struct recover *r)
{
    asked_free(&r->asked);
}

void recover_destroy(struct recover *r)
{
    recover_drop_listing(r);
    if (r->machine != NULL) {
        recovery_free(r->machine);
    }
    for (uint32_t i = 0; i < r->inventory_count; i++) {
        inventory_free(&r->inventories[i]);
    }
    free(r->inventories);
    recover_free_look(r);
    recover_forget_fetches(r);
    recovery_actions_free(&r->actions);
    id_map_free(&r->outsiders);
    free(r->answered);
    free(r);
}
