/* SPDX-License-Identifier: Apache-2.0
 * Compares what each node has of two versions. */
#include "recovery/newer_version.h"

static struct version newest_known_commit(const struct plan_input *input)
{
    struct version newest = VERSION_NONE;
    for (uint32_t i = 0; i < input->inventory_count; i++) {
        struct version watermark = input->inventories[i].watermark;
        newest = version_cmp(watermark, newest) > 0 ? watermark : newest;
    }
    return newest;
}

/* Holdings are sorted by shard, then version, so the newer copy of the same shard comes later. */
static bool has_newer_too(const struct inventory *inventory, uint32_t older, struct version newer)
{
    const struct holding *holdings = inventory->holdings;
    for (uint32_t i = older + 1; i < inventory->count && hash128_is(holdings[i].shard, holdings[older].shard); i++) {
        if (version_is(holdings[i].version, newer)) {
            return true;
        }
    }
    return false;
}

bool newer_may_be_committed(const struct plan_input *input, struct version version)
{
    struct version known = newest_known_commit(input);
    if (version_cmp(version, known) <= 0) {
        return false; /* it was superseded, or is known to be committed */
    }
    for (uint32_t i = 0; i < input->inventory_count; i++) {
        const struct inventory *inventory = &input->inventories[i];
        for (uint32_t k = 0; k < inventory->count; k++) {
            if (version_is(inventory->holdings[k].version, known) && !has_newer_too(inventory, k, version)) {
                return false;
            }
        }
    }
    return true;
}
