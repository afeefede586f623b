/* SPDX-License-Identifier: Apache-2.0
 * Where a copy that is missing is fetched from. */
#include "recovery/repair_source.h"

bool repair_source_at(const struct placement *placement, uint32_t shard, uint32_t self, uint32_t place,
                      struct repair_source *out)
{
    const struct shard_placement *p = &placement->shards[shard];
    uint32_t seen = 0;
    for (uint32_t i = 0; i < p->owner_count + p->holder_count; i++) {
        bool owner = i < p->owner_count;
        uint32_t node = owner ? placement->owners[p->first_owner + i] : p->holders[i - p->owner_count];
        if (node != self && seen++ == place) {
            *out = (struct repair_source){.kind = owner ? SOURCE_TWIN : SOURCE_PEER, .node = node};
            return true;
        }
    }
    if (seen == place) {
        *out = (struct repair_source){.kind = SOURCE_STORAGE, .node = NONE32};
    }
    return seen == place;
}
