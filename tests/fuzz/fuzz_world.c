/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a world: refused, or the one encoding of a world whose indices all lie within. */
#include "base/world.h"
#include "fuzz.h"
#include <string.h>

static void check_indices(const struct world *world)
{
    for (uint32_t r = 0; r < world->world_size; r++) {
        MUST_HOLD(world->node_of_rank[r] < world->node_count);
    }
    for (uint32_t i = 0; i < world->shard_count; i++) {
        const struct world_shard *shard = &world->shards[i];
        MUST_HOLD(world_find_shard(world, shard->id) == i);
        for (uint32_t k = 0; k < shard->rank_count; k++) {
            MUST_HOLD(world->shard_ranks[shard->first_rank + k] < world->world_size);
        }
    }
    for (uint32_t i = 0; i < world->node_count; i++) {
        MUST_HOLD(world_find_node(world, world->nodes[i].name) == i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world world;
    struct reader r = reader_of(data, size);
    if (world_decode(&r, &world, NULL) != TCK_OK) {
        return 0;
    }
    check_indices(&world);
    struct writer w = writer_new(0);
    world_encode(&world, &w);
    MUST_HOLD(!w.failed && w.len == r.pos && memcmp(w.data, data, w.len) == 0);
    writer_free(&w);
    world_free(&world);
    return 0;
}
