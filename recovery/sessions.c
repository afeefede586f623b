/* SPDX-License-Identifier: Apache-2.0
 * With which nodes a node needs sessions in its term. */
#include "recovery/sessions.h"

void sessions_wanted(const struct node_setup *setup, const struct placement *placement, bool coordinates,
                     enum session_use *wanted)
{
    for (uint32_t n = 0; n < setup->node_count; n++) {
        wanted[n] = n == 0 || coordinates ? SESSION_MESSAGES : SESSION_NONE;
    }
    for (uint32_t i = 0; i < setup->shard_count; i++) {
        const struct node_shard *s = &setup->shards[i];
        for (uint32_t h = 0; h < s->holder_count; h++) {
            wanted[s->holders[h]] = SESSION_COPIES;
        }
        if (s->held && s->world_shard != NONE32) {
            wanted[placement->shards[s->world_shard].source] = SESSION_COPIES;
        }
    }
}
