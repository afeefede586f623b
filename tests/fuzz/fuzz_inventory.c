/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as an inventory: refused, or the one encoding of an inventory in its order. */
#include "fuzz.h"
#include "recovery/inventory.h"

FUZZ_CODEC(inventory)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct inventory inventory;
    try_inventory(data, size);
    if (inventory_decode(data, size, &inventory) != TCK_OK) {
        return 0;
    }
    for (uint32_t i = 1; i < inventory.count; i++) {
        const struct holding *a = &inventory.holdings[i - 1], *b = &inventory.holdings[i];
        int order = hash128_cmp(a->shard, b->shard);
        MUST_HOLD(order < 0 || (order == 0 && version_cmp(a->version, b->version) <= 0));
    }
    inventory_free(&inventory);
    return 0;
}
