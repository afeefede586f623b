/* SPDX-License-Identifier: Apache-2.0
 * Chooses a source for each piece of the chosen version. */
#include "recovery/plan.h"

#include "recovery/choice.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct planner {
    const struct plan_input *input;
    struct replica_index copies;
    struct coverage *coverage;   /* by shard, of the version looked at last */
    uint32_t *node_of_inventory; /* NONE32: not of this world */
    uint32_t *inventory_of_node; /* NONE32: none */
    uint64_t *load;              /* by inventory: bytes that it sends in this plan */
    uint32_t *heap;              /* inventories to send one shard from, the least loaded on top */
    uint32_t heap_count;
};

/* ---- inventories and nodes ----------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const struct node_info *x = *(const struct node_info *const *)a;
    const struct node_info *y = *(const struct node_info *const *)b;
    return strcmp(x->name, y->name);
}

static void match_nodes(struct planner *p, const struct node_info **sorted)
{
    const struct world *world = p->input->world;
    for (uint32_t i = 0; i < world->node_count; i++) {
        sorted[i] = &world->nodes[i];
        p->inventory_of_node[i] = NONE32;
    }
    qsort(sorted, world->node_count, sizeof(const struct node_info *), by_name);
    for (uint32_t i = 0; i < p->input->inventory_count; i++) {
        const struct node_info *wanted = &p->input->inventories[i].node;
        const struct node_info *const *found =
            bsearch(&wanted, sorted, world->node_count, sizeof(const struct node_info *), by_name);
        bool same = found != NULL && (*found)->agent_id == wanted->agent_id;
        p->node_of_inventory[i] = same ? (uint32_t)(*found - world->nodes) : NONE32;
        if (same && p->inventory_of_node[p->node_of_inventory[i]] == NONE32) {
            p->inventory_of_node[p->node_of_inventory[i]] = i;
        }
    }
}

static void planner_free(struct planner *p)
{
    replica_index_free(&p->copies);
    free(p->coverage);
    free(p->node_of_inventory);
    free(p->inventory_of_node);
    free(p->load);
    free(p->heap);
}

static tck_status_t planner_init(struct planner *p, const struct plan_input *input, struct error *err)
{
    size_t inventories = (size_t)input->inventory_count + 1, nodes = (size_t)input->world->node_count + 1;
    *p = (struct planner){.input = input};
    p->coverage = calloc((size_t)input->world->shard_count + 1, sizeof(*p->coverage));
    p->node_of_inventory = calloc(inventories, sizeof(*p->node_of_inventory));
    p->inventory_of_node = calloc(nodes, sizeof(*p->inventory_of_node));
    p->load = calloc(inventories, sizeof(*p->load));
    p->heap = calloc(inventories, sizeof(*p->heap));
    const struct node_info **sorted = calloc(nodes, sizeof(const struct node_info *));
    tck_status_t status = TCK_OK;
    if (p->coverage == NULL || p->node_of_inventory == NULL || p->inventory_of_node == NULL || p->load == NULL ||
        p->heap == NULL || sorted == NULL) {
        status = error_set(err, TCK_ERR_NOMEM, "no memory for a plan for %u shards", input->world->shard_count);
        goto free_sorted;
    }
    match_nodes(p, sorted);
    status = replica_index_build(input, &p->copies, err);
free_sorted:
    free(sorted);
    return status;
}

/* ---- where each piece comes from ----------------------------------------------------------------------------- */

static bool lighter(const struct planner *p, uint32_t a, uint32_t b)
{
    return p->load[a] != p->load[b] ? p->load[a] < p->load[b] : a < b;
}

static void sift_down(struct planner *p, uint32_t i)
{
    for (uint32_t child; (child = 2 * i + 1) < p->heap_count; i = child) {
        if (child + 1 < p->heap_count && lighter(p, p->heap[child + 1], p->heap[child])) {
            child++;
        }
        if (lighter(p, p->heap[i], p->heap[child])) {
            return;
        }
        uint32_t swap = p->heap[i];
        p->heap[i] = p->heap[child];
        p->heap[child] = swap;
    }
}

/* Puts the holders of this shard's copies on the heap: owners of the shard, or else (twins false) all. */
static void fill_heap(struct planner *p, uint32_t shard, bool twins)
{
    const struct coverage *cover = &p->coverage[shard];
    p->heap_count = 0;
    for (size_t i = cover->first; i < cover->first + cover->count; i++) {
        uint32_t inventory = p->copies.items[i].inventory, node = p->node_of_inventory[inventory];
        bool owner = node != NONE32 && placement_is_owner(p->input->placement, shard, node);
        bool doubled = i > cover->first && p->copies.items[i - 1].inventory == inventory;
        if ((owner || !twins) && !doubled) {
            p->heap[p->heap_count++] = inventory;
        }
    }
    for (uint32_t i = p->heap_count / 2; i-- > 0;) {
        sift_down(p, i);
    }
}

/* The cheapest kind of remote source that this shard has; afterwards the heap contains its holders. */
static uint8_t prepare_sources(struct planner *p, uint32_t shard)
{
    fill_heap(p, shard, true);
    if (p->heap_count > 0) {
        return SOURCE_TWIN;
    }
    fill_heap(p, shard, false);
    return p->heap_count > 0 ? SOURCE_PEER : SOURCE_STORAGE;
}

/* Copies of one shard with one root are sorted by inventory. */
static bool has_copy(const struct planner *p, uint32_t shard, uint32_t inventory)
{
    const struct coverage *cover = &p->coverage[shard];
    size_t low = cover->first, high = cover->first + cover->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (p->copies.items[middle].inventory < inventory) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < cover->first + cover->count && p->copies.items[low].inventory == inventory;
}

static void add_action(struct planner *p, struct plan *plan, struct plan_action action, uint8_t remote)
{
    uint64_t bytes = p->input->world->shards[action.shard].image_bytes;
    uint32_t own = p->inventory_of_node[action.node];
    if (own != NONE32 && has_copy(p, action.shard, own)) {
        action.source = SOURCE_LOCAL;
        action.inventory = own;
    } else {
        action.source = remote;
        action.inventory = remote == SOURCE_STORAGE ? NONE32 : p->heap[0];
        action.bytes = bytes;
        if (remote != SOURCE_STORAGE) {
            p->load[p->heap[0]] += bytes;
            sift_down(p, 0);
        }
    }
    plan->bytes_by_source[action.source] += bytes;
    plan->actions[plan->action_count++] = action;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void plan_owners(struct planner *p, struct plan *plan)
{
    const struct placement *placement = p->input->placement;
    for (uint32_t shard = 0; shard < placement->shard_count; shard++) {
        const struct shard_placement *s = &placement->shards[shard];
        uint8_t remote = prepare_sources(p, shard);
        for (uint32_t i = 0; i < s->owner_count; i++) {
            struct plan_action action = {.shard = shard, .node = placement->owners[s->first_owner + i]};
            add_action(p, plan, action, remote);
        }
    }
}

static void plan_holders(struct planner *p, struct plan *plan)
{
    const struct placement *placement = p->input->placement;
    for (uint32_t shard = 0; shard < placement->shard_count; shard++) {
        const struct shard_placement *s = &placement->shards[shard];
        uint8_t remote = prepare_sources(p, shard);
        uint32_t holders[CORE_HOLDERS_MAX];
        memcpy(holders, s->holders, sizeof(holders));
        qsort(holders, s->holder_count, sizeof(*holders), by_number);
        for (uint32_t i = 0; i < s->holder_count; i++) {
            struct plan_action action = {.shard = shard, .node = holders[i], .for_holder = true};
            add_action(p, plan, action, remote);
        }
    }
}

static tck_status_t plan_actions(struct planner *p, struct plan *plan, struct error *err)
{
    const struct placement *placement = p->input->placement;
    size_t count = 0;
    for (uint32_t i = 0; i < placement->shard_count; i++) {
        count += placement->shards[i].owner_count + placement->shards[i].holder_count;
    }
    plan->actions = calloc(count + 1, sizeof(*plan->actions));
    if (plan->actions == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a plan of %zu actions", count);
    }
    plan_owners(p, plan);
    plan_holders(p, plan);
    const uint64_t *bytes = plan->bytes_by_source;
    plan->from_storage_only =
        bytes[SOURCE_STORAGE] > 0 && bytes[SOURCE_LOCAL] == 0 && bytes[SOURCE_TWIN] == 0 && bytes[SOURCE_PEER] == 0;
    return TCK_OK;
}

tck_status_t plan_build(const struct plan_input *input, struct plan *out, struct error *err)
{
    struct planner planner;
    struct plan plan = {0};
    tck_status_t status = planner_init(&planner, input, err);
    if (status != TCK_OK) {
        goto free_planner;
    }
    choose_version(&planner.copies, planner.coverage, &plan);
    choice_explain(input, &plan);
    if (!version_none(plan.version)) {
        status = plan_actions(&planner, &plan, err);
    }
    if (status == TCK_OK) {
        *out = plan;
    }
free_planner:
    planner_free(&planner);
    return status;
}

void plan_free(struct plan *plan)
{
    free(plan->actions);
    *plan = (struct plan){0};
}
