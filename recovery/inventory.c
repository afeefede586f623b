/* SPDX-License-Identifier: Apache-2.0
 * Inventories: their order, and what their tables cannot express. */
#include "recovery/inventory.h"

#include <stdlib.h>

static int holding_cmp(const void *a, const void *b)
{
    const struct holding *x = a, *y = b;
    int order = hash128_cmp(x->shard, y->shard);
    return order != 0 ? order : version_cmp(x->version, y->version);
}

void inventory_sort(struct inventory *inventory)
{
    if (inventory->count > 0) {
        qsort(inventory->holdings, inventory->count, sizeof(*inventory->holdings), holding_cmp);
    }
}

static bool holding_is_valid(const struct holding *m)
{
    return !version_none(m->version);
}

static bool holdings_are_sorted(const struct inventory *m)
{
    for (uint32_t i = 1; i < m->count; i++) {
        if (holding_cmp(&m->holdings[i - 1], &m->holdings[i]) > 0) {
            return false;
        }
    }
    return true;
}

SCHEMA_PART(holding, HOLDING_FIELDS, holding_is_valid)
SCHEMA_CODEC(inventory, NODE_INVENTORY_FIELDS, holdings_are_sorted)
