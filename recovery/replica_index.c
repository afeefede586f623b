/* SPDX-License-Identifier: Apache-2.0
 * Collects copies from inventories and the list of storage by sorting; no list is scanned once for each item of
 * another. */
#include "recovery/replica_index.h"

#include <stdlib.h>

static int compare_u32(uint32_t a, uint32_t b)
{
    return (a > b) - (a < b);
}

static int newest_first(const void *a, const void *b)
{
    const struct seen_version *x = a, *y = b;
    int order = version_cmp(y->version, x->version);
    return order != 0 ? order : (int)y->layout_matches - (int)x->layout_matches;
}

static int copy_cmp(const void *a, const void *b)
{
    const struct copy *x = a, *y = b;
    int order = version_cmp(y->version, x->version);
    order = order != 0 ? order : compare_u32(x->shard, y->shard);
    order = order != 0 ? order : hash128_cmp(x->root, y->root);
    return order != 0 ? order : compare_u32(x->inventory, y->inventory);
}

static int bad_cmp(const void *a, const void *b)
{
    const struct bad_copy *x = a, *y = b;
    int order = version_cmp(x->version, y->version);
    order = order != 0 ? order : hash128_cmp(x->shard, y->shard);
    return order != 0 ? order : compare_u32(x->inventory, y->inventory);
}

static bool is_bad(const struct replica_index *c, struct hash128 shard, struct version version, uint32_t inventory)
{
    struct bad_copy key = {.shard = shard, .version = version, .inventory = inventory};
    return c->input->bad_count > 0 && bsearch(&key, c->bad, c->input->bad_count, sizeof(key), bad_cmp) != NULL;
}

static bool copies_alloc(struct replica_index *c)
{
    size_t holdings = 0;
    for (uint32_t i = 0; i < c->input->inventory_count; i++) {
        holdings += c->input->inventories[i].count;
    }
    c->items = calloc(holdings + 1, sizeof(*c->items));
    c->seen = calloc(holdings + c->input->storage.stored_count + 1, sizeof(*c->seen));
    c->bad = calloc((size_t)c->input->bad_count + 1, sizeof(*c->bad));
    return c->items != NULL && c->seen != NULL && c->bad != NULL;
}

static void add_seen(struct replica_index *c, struct version version, struct hash128 layout)
{
    bool matches = hash128_is(layout, c->input->world->layout);
    if (version.term <= c->input->storage.forgotten) {
        return;
    }
    c->seen[c->seen_count++] = (struct seen_version){version, matches};
}

static void add_copy(struct replica_index *c, const struct holding *h, uint32_t inventory)
{
    const struct world *world = c->input->world;
    int64_t shard = hash128_is(h->layout, world->layout) ? world_find_shard(world, h->shard) : -1;
    if (shard < 0 || h->image_bytes != world->shards[shard].image_bytes || is_bad(c, h->shard, h->version, inventory)) {
        return;
    }
    c->items[c->count++] = (struct copy){h->version, h->root, (uint32_t)shard, inventory};
}

static void gather(struct replica_index *c)
{
    for (uint32_t i = 0; i < c->input->bad_count; i++) {
        c->bad[i] = c->input->bad[i];
    }
    qsort(c->bad, c->input->bad_count, sizeof(*c->bad), bad_cmp);
    for (uint32_t i = 0; i < c->input->inventory_count; i++) {
        const struct inventory *inventory = &c->input->inventories[i];
        for (uint32_t k = 0; k < inventory->count; k++) {
            add_seen(c, inventory->holdings[k].version, inventory->holdings[k].layout);
            add_copy(c, &inventory->holdings[k], i);
        }
    }
    for (uint32_t i = 0; i < c->input->storage.stored_count; i++) {
        add_seen(c, c->input->storage.stored[i].version, c->input->storage.stored[i].layout);
    }
    qsort(c->items, c->count, sizeof(*c->items), copy_cmp);
    qsort(c->seen, c->seen_count, sizeof(*c->seen), newest_first);
}

/* Of each version the first entry stays: the one that matches, if any does. */
static void keep_each_version_once(struct replica_index *c)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->seen_count; i++) {
        if (kept == 0 || !version_is(c->seen[kept - 1].version, c->seen[i].version)) {
            c->seen[kept++] = c->seen[i];
        }
    }
    c->seen_count = kept;
}

tck_status_t replica_index_build(const struct plan_input *input, struct replica_index *out, struct error *err)
{
    struct replica_index copies = {.input = input};
    if (!copies_alloc(&copies)) {
        replica_index_free(&copies);
        return error_set(err, TCK_ERR_NOMEM, "no memory for a plan over %u inventories", input->inventory_count);
    }
    gather(&copies);
    keep_each_version_once(&copies);
    *out = copies;
    return TCK_OK;
}

void replica_index_free(struct replica_index *copies)
{
    free(copies->items);
    free(copies->seen);
    free(copies->bad);
    *copies = (struct replica_index){0};
}

/* First copy that is not of a newer version. */
static size_t first_of(const struct replica_index *c, struct version version)
{
    size_t low = 0, high = c->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (version_cmp(c->items[middle].version, version) > 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static size_t run_of_same_root(const struct replica_index *c, size_t first)
{
    const struct copy *start = &c->items[first];
    size_t end = first + 1;
    while (end < c->count && version_is(c->items[end].version, start->version) && c->items[end].shard == start->shard &&
           hash128_is(c->items[end].root, start->root)) {
        end++;
    }
    return end - first;
}

static void cover_from_memory(const struct replica_index *c, struct version version, struct coverage *out)
{
    size_t run;
    for (size_t i = first_of(c, version); i < c->count && version_is(c->items[i].version, version); i += run) {
        run = run_of_same_root(c, i);
        struct coverage *shard = &out[c->items[i].shard];
        if (run > shard->count) {
            shard->first = i;
            shard->count = (uint32_t)run;
        }
    }
}

/* Both lists of shards are sorted by id. */
static void cover_from_storage(const struct replica_index *c, const struct stored_version *stored, struct coverage *out)
{
    const struct world *world = c->input->world;
    uint32_t i = 0, k = 0;
    while (i < world->shard_count && k < stored->shard_count) {
        int order = hash128_cmp(world->shards[i].id, stored->shards[k]);
        if (order == 0) {
            out[i].stored |= !is_bad(c, stored->shards[k], stored->version, NONE32);
        }
        i += order <= 0;
        k += order >= 0;
    }
}

uint32_t replica_index_cover(const struct replica_index *copies, struct version version, struct coverage *out,
                             uint32_t *example_out)
{
    const struct plan_input *input = copies->input;
    for (uint32_t i = 0; i < input->world->shard_count; i++) {
        out[i] = (struct coverage){0};
    }
    cover_from_memory(copies, version, out);
    for (uint32_t i = 0; i < input->storage.stored_count; i++) {
        const struct stored_version *stored = &input->storage.stored[i];
        if (version_is(stored->version, version) && hash128_is(stored->layout, input->world->layout)) {
            cover_from_storage(copies, stored, out);
        }
    }
    uint32_t missing = 0;
    *example_out = NONE32;
    for (uint32_t i = 0; i < input->world->shard_count; i++) {
        if (out[i].count == 0 && !out[i].stored) {
            *example_out = missing++ == 0 ? i : *example_out;
        }
    }
    return missing;
}

/* ---- another layout ------------------------------------------------------------------------------------------ */

static int by_shard(const void *a, const void *b)
{
    return hash128_cmp(((const struct world_shard *)a)->id, ((const struct world_shard *)b)->id);
}

bool replica_index_committed(const struct replica_index *c, struct version version)
{
    bool committed = false;
    for (uint32_t i = 0; i < c->input->inventory_count && !committed; i++) {
        const struct inventory *inventory = &c->input->inventories[i];
        committed = version_is(inventory->watermark, version);
        for (uint32_t k = 0; k < inventory->count && !committed; k++) {
            committed = inventory->holdings[k].committed && version_is(inventory->holdings[k].version, version);
        }
    }
    return committed;
}

/* The shards of the version that are held, each once, by id. */
static uint32_t held_shards(const struct replica_index *c, struct version version, struct world_shard *out,
                            struct hash128 *layout_out)
{
    uint32_t count = 0, kept = 0;
    for (uint32_t i = 0; i < c->input->inventory_count; i++) {
        const struct inventory *inventory = &c->input->inventories[i];
        for (uint32_t k = 0; k < inventory->count; k++) {
            const struct holding *h = &inventory->holdings[k];
            if (version_is(h->version, version) && !hash128_is(h->layout, c->input->world->layout)) {
                out[count++] = (struct world_shard){.id = h->shard, .image_bytes = h->image_bytes};
                *layout_out = h->layout;
            }
        }
    }
    qsort(out, count, sizeof(*out), by_shard);
    for (uint32_t i = 0; i < count; i++) {
        if (kept == 0 || !hash128_is(out[kept - 1].id, out[i].id)) {
            out[kept++] = out[i];
        }
    }
    return kept;
}

bool replica_index_whole_elsewhere(const struct replica_index *copies, struct version version)
{
    size_t holdings = 0;
    struct hash128 layout = {0, 0}, held = {0, 0};
    for (uint32_t i = 0; i < copies->input->inventory_count; i++) {
        holdings += copies->input->inventories[i].count;
    }
    struct world_shard *shards = calloc(holdings + 1, sizeof(*shards));
    if (shards == NULL) {
        return true; /* no memory to check this: better no version than an older one */
    }
    uint32_t count = held_shards(copies, version, shards, &layout);
    bool whole = count > 0 && world_hash_shards(shards, count, &held) == TCK_OK && hash128_is(held, layout);
    free(shards);
    return whole;
}
