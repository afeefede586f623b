/* SPDX-License-Identifier: Apache-2.0
 * Small worlds and inventories for the tests of recovery. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>

#define FIXTURE_HOLDINGS_MAX 64

/* Makes room for `more` items after count: the capacity is a power of two, so that large worlds are built quickly. */
static void *grow(void *items, uint32_t count, uint32_t more, size_t item_bytes)
{
    size_t cap = 1, wanted = (size_t)count + more;
    while (cap < wanted) {
        cap *= 2;
    }
    if (items != NULL && cap / 2 < count) {
        return items;
    }
    items = realloc(items, cap * item_bytes);
    if (items == NULL) {
        abort();
    }
    return items;
}

static void *must(void *memory)
{
    if (memory == NULL) {
        abort();
    }
    return memory;
}

struct world fixture_world(uint32_t nodes, uint32_t ranks_per_node, uint32_t nodes_per_domain)
{
    struct world world = {.term = 7, .node_count = nodes, .world_size = nodes * ranks_per_node};
    world.layout = FIXTURE_LAYOUT;
    world.nodes = must(calloc(nodes, sizeof(*world.nodes)));
    world.node_of_rank = must(calloc(world.world_size, sizeof(*world.node_of_rank)));
    for (uint32_t i = 0; i < nodes; i++) {
        struct node_info *node = &world.nodes[i];
        snprintf(node->name, sizeof(node->name), "node%u", i);
        snprintf(node->domain, sizeof(node->domain), "domain%u", i / nodes_per_domain);
        node->agent_id = 1000 + i;
    }
    for (uint32_t r = 0; r < world.world_size; r++) {
        world.node_of_rank[r] = r / ranks_per_node;
    }
    if (world_sort_agents(&world) != TCK_OK) {
        abort();
    }
    return world;
}

void fixture_add_shard(struct world *world, uint64_t bytes, uint32_t rank_count, const uint32_t *ranks)
{
    uint32_t first = 0;
    if (world->shard_count > 0) {
        const struct world_shard *last = &world->shards[world->shard_count - 1];
        first = last->first_rank + last->rank_count;
    }
    world->shards = grow(world->shards, world->shard_count, 1, sizeof(*world->shards));
    world->shard_ranks = grow(world->shard_ranks, first, rank_count, sizeof(*world->shard_ranks));
    for (uint32_t i = 0; i < rank_count; i++) {
        world->shard_ranks[first + i] = ranks[i];
    }
    world->shards[world->shard_count] = (struct world_shard){
        .id = {world->shard_count + 1, 0}, .image_bytes = bytes, .first_rank = first, .rank_count = rank_count};
    world->shard_count++;
}

void fixture_add_private_shards(struct world *world, uint64_t bytes)
{
    for (uint32_t r = 0; r < world->world_size; r++) {
        fixture_add_shard(world, bytes, 1, &r);
    }
}

struct inventory fixture_inventory(const struct world *world, uint32_t node)
{
    struct inventory inventory = {.node = world->nodes[node]};
    inventory.holdings = must(calloc(FIXTURE_HOLDINGS_MAX, sizeof(*inventory.holdings)));
    return inventory;
}

void fixture_hold(struct inventory *inventory, const struct world *world, uint32_t shard, struct version version)
{
    if (inventory->count == FIXTURE_HOLDINGS_MAX) {
        abort();
    }
    inventory->holdings[inventory->count++] = (struct holding){
        .shard = world->shards[shard].id,
        .layout = world->layout,
        .version = version,
        .root = {version.step, shard},
        .image_bytes = world->shards[shard].image_bytes,
        .committed = true,
    };
    inventory_sort(inventory);
}
