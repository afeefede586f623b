/* SPDX-License-Identifier: Apache-2.0
 * The bases of earlier terms, as inventories remember them. */
#include "recovery/former_bases.h"

bool was_restored_before(const struct plan_input *input, struct version version)
{
    for (uint32_t i = 0; i < input->inventory_count; i++) {
        if (version_is(input->inventories[i].base, version)) {
            return true;
        }
    }
    return false;
}

/* If agents remember different texts, the one of the newest term is returned. A newer term may have no text: it chose
 * the same version, but could not reach any agent that remembered the reason. */
const char *passed_over_before(const struct plan_input *input, struct version version)
{
    const struct inventory *newest = NULL;
    for (uint32_t i = 0; i < input->inventory_count; i++) {
        const struct inventory *inventory = &input->inventories[i];
        bool explains = version_is(inventory->base, version) && inventory->passed_over[0] != '\0';
        if (explains && (newest == NULL || inventory->base_term > newest->base_term)) {
            newest = inventory;
        }
    }
    return newest != NULL ? newest->passed_over : "";
}
