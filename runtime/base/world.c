/* SPDX-License-Identifier: Apache-2.0
 * The world of one term: grouping ranks into nodes and their shards into one layout, and the encodings of both. */
#include "base/world.h"
#include "base/digest.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SHARD_IMAGE_BYTES_MAX ((uint64_t)UINT32_MAX * CHUNK_BYTES) /* chunk numbers fit 32 bits */

/* An array of the caller's, never of size 0. */
static void *new_array(size_t count, size_t size)
{
    return calloc(count == 0 ? 1 : count, size);
}

void world_free(struct world *world)
{
    free(world->nodes);
    free(world->by_agent);
    free(world->node_of_rank);
    free(world->shards);
    free(world->shard_ranks);
    *world = (struct world){0};
}

/* ---- nodes --------------------------------------------------------------------------------------------------- */

/* Orders pointers into one array of hellos by node name, then by rank. */
static int compare_hellos(const void *a, const void *b)
{
    const struct rank_hello *x = *(const struct rank_hello *const *)a, *y = *(const struct rank_hello *const *)b;
    int by_name = strcmp(x->node.name, y->node.name);
    if (by_name != 0) {
        return by_name;
    }
    return x < y ? -1 : x > y;
}

/* Fills node_of_rank with the lowest rank on each rank's node. */
static tck_status_t find_first_ranks(const struct rank_hello *hellos, struct world *world, struct error *err)
{
    const struct rank_hello **sorted = new_array(world->world_size, sizeof(struct rank_hello *));
    tck_status_t status = TCK_OK;
    if (sorted == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a world of %u ranks", world->world_size);
    }
    for (uint32_t r = 0; r < world->world_size; r++) {
        sorted[r] = &hellos[r];
    }
    qsort(sorted, world->world_size, sizeof(struct rank_hello *), compare_hellos);
    const struct rank_hello *first = sorted[0];
    for (uint32_t i = 0; i < world->world_size && status == TCK_OK; i++) {
        if (strcmp(sorted[i]->node.name, first->node.name) != 0) {
            first = sorted[i];
        }
        if (sorted[i]->node.agent_id != first->node.agent_id) {
            status = error_set(err, TCK_ERR_CONFIG,
                               "node \"%s\": ranks %td and %td run on two machines or under two agents with this name",
                               first->node.name, first - hellos, sorted[i] - hellos);
        }
        world->node_of_rank[sorted[i] - hellos] = (uint32_t)(first - hellos);
    }
    free(sorted);
    return status;
}

/* Numbers the nodes by their first ranks. A first rank comes before the others of its node, so one pass does. */
static void number_nodes(const struct rank_hello *hellos, struct world *world)
{
    for (uint32_t r = 0; r < world->world_size; r++) {
        uint32_t first = world->node_of_rank[r];
        if (first == r) {
            world->nodes[world->node_count] = hellos[r].node;
            world->node_of_rank[r] = world->node_count++;
        } else {
            world->node_of_rank[r] = world->node_of_rank[first];
        }
    }
}

static int compare_agents(const void *a, const void *b, void *nodes)
{
    const struct node_info *x = (const struct node_info *)nodes + *(const uint32_t *)a;
    const struct node_info *y = (const struct node_info *)nodes + *(const uint32_t *)b;
    return x->agent_id < y->agent_id ? -1 : x->agent_id > y->agent_id;
}

tck_status_t world_sort_agents(struct world *world)
{
    world->by_agent = new_array(world->node_count, sizeof(*world->by_agent));
    if (world->by_agent == NULL) {
        return TCK_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < world->node_count; i++) {
        world->by_agent[i] = i;
    }
    qsort_r(world->by_agent, world->node_count, sizeof(*world->by_agent), compare_agents, world->nodes);
    return TCK_OK;
}

tck_status_t world_build(uint64_t term, const struct rank_hello *hellos, uint32_t world_size, struct world *out,
                         struct error *err)
{
    if (world_size == 0 || world_size > WORLD_RANKS_MAX) {
        return error_set(err, TCK_ERR_INVAL, "world size %u is out of range (1 to %u)", world_size, WORLD_RANKS_MAX);
    }
    struct world world = {.term = term, .world_size = world_size};
    world.nodes = new_array(world_size, sizeof(*world.nodes));
    world.node_of_rank = new_array(world_size, sizeof(*world.node_of_rank));
    if (world.nodes == NULL || world.node_of_rank == NULL) {
        world_free(&world);
        return error_set(err, TCK_ERR_NOMEM, "no memory for a world of %u ranks", world_size);
    }
    tck_status_t status = find_first_ranks(hellos, &world, err);
    if (status != TCK_OK) {
        world_free(&world);
        return status;
    }
    number_nodes(hellos, &world);
    status = world_sort_agents(&world);
    if (status != TCK_OK) {
        world_free(&world);
        return error_set(err, status, "no memory for a world of %u ranks", world_size);
    }
    *out = world;
    return TCK_OK;
}

int64_t world_find_node(const struct world *world, const char *name)
{
    for (uint32_t i = 0; i < world->node_count; i++) {
        if (strcmp(world->nodes[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

int64_t world_find_agent(const struct world *world, uint64_t agent_id)
{
    uint32_t low = 0, high = world->node_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (world->nodes[world->by_agent[middle]].agent_id < agent_id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool found = low < world->node_count && world->nodes[world->by_agent[low]].agent_id == agent_id;
    return found ? (int64_t)world->by_agent[low] : -1;
}

/* ---- shards -------------------------------------------------------------------------------------------------- */

/* What one rank reports about one shard. */
struct claim {
    const struct shard_info *info;
    uint32_t rank;
};

static int compare_claims(const void *a, const void *b)
{
    const struct claim *x = a, *y = b;
    int by_id = hash128_cmp(x->info->id, y->info->id);
    if (by_id != 0) {
        return by_id;
    }
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static struct claim *sorted_claims(const struct world *world, const struct shard_info *infos, const uint32_t *counts,
                                   uint32_t total)
{
    struct claim *claims = new_array(total, sizeof(*claims));
    uint32_t n = 0;
    if (claims == NULL) {
        return NULL;
    }
    for (uint32_t r = 0; r < world->world_size; r++) {
        for (uint32_t i = 0; i < counts[r]; i++, n++) {
            claims[n] = (struct claim){.info = &infos[n], .rank = r};
        }
    }
    qsort(claims, total, sizeof(*claims), compare_claims);
    return claims;
}

/* Checks that two ranks can both hold the shard as they claim; the lower rank comes first. */
static tck_status_t check_twins(const struct claim *a, const struct claim *b, struct error *err)
{
    char id[HASH128_TEXT];
    hash128_text(a->info->id, id);
    if (a->rank == b->rank) {
        return error_set(err, TCK_ERR_LAYOUT, "shard %s is listed twice by rank %u", id, a->rank);
    }
    if (a->info->image_bytes != b->info->image_bytes) {
        return error_set(err, TCK_ERR_LAYOUT, "shard %s has %" PRIu64 " bytes on rank %u and %" PRIu64 " on rank %u",
                         id, a->info->image_bytes, a->rank, b->info->image_bytes, b->rank);
    }
    if (a->info->private_to_rank || b->info->private_to_rank) {
        return error_set(err, TCK_ERR_LAYOUT, "shard %s has no replica group but is on ranks %u and %u", id, a->rank,
                         b->rank);
    }
    return TCK_OK;
}

/* Appends the claim to the last shard of the world or begins a new one. */
static tck_status_t take_claim(struct world *world, const struct claim *claims, uint32_t i, struct error *err)
{
    const struct shard_info *info = claims[i].info;
    if (info->image_bytes > SHARD_IMAGE_BYTES_MAX) {
        return error_set(err, TCK_ERR_LAYOUT, "a shard of rank %u has %" PRIu64 " bytes; the limit is %" PRIu64,
                         claims[i].rank, info->image_bytes, SHARD_IMAGE_BYTES_MAX);
    }
    if (i > 0 && hash128_is(info->id, claims[i - 1].info->id)) {
        tck_status_t status = check_twins(&claims[i - 1], &claims[i], err);
        if (status != TCK_OK) {
            return status;
        }
    } else {
        world->shards[world->shard_count++] =
            (struct world_shard){.id = info->id, .image_bytes = info->image_bytes, .first_rank = i};
    }
    world->shards[world->shard_count - 1].rank_count++;
    world->shard_ranks[i] = claims[i].rank;
    return TCK_OK;
}

tck_status_t world_hash_shards(const struct world_shard *shards, uint32_t count, struct hash128 *out)
{
    struct writer w = writer_new(0);
    for (uint32_t i = 0; i < count; i++) {
        write_hash128(&w, shards[i].id);
        write_u64(&w, shards[i].image_bytes);
    }
    tck_status_t status = w.failed ? TCK_ERR_NOMEM : TCK_OK;
    if (status == TCK_OK && count > 0) {
        *out = hash128_of(w.data, w.len);
    }
    writer_free(&w);
    return status;
}

static tck_status_t hash_layout(struct world *world)
{
    struct hash128 layout = world->layout;
    tck_status_t status = world_hash_shards(world->shards, world->shard_count, &layout);
    world->layout = layout;
    return status;
}

static tck_status_t take_claims(struct world *world, const struct claim *claims, uint32_t total, struct error *err)
{
    world->shards = new_array(total, sizeof(*world->shards));
    world->shard_ranks = new_array(total, sizeof(*world->shard_ranks));
    if (claims == NULL || world->shards == NULL || world->shard_ranks == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for %u shards", total);
    }
    for (uint32_t i = 0; i < total; i++) {
        tck_status_t status = take_claim(world, claims, i, err);
        if (status != TCK_OK) {
            return status;
        }
    }
    if (hash_layout(world) != TCK_OK) {
        return error_set(err, TCK_ERR_NOMEM, "no memory to hash a layout of %u shards", world->shard_count);
    }
    return TCK_OK;
}

tck_status_t world_add_shards(struct world *world, const struct shard_info *infos, const uint32_t *counts,
                              struct error *err)
{
    uint64_t total = 0;
    for (uint32_t r = 0; r < world->world_size; r++) {
        total += counts[r];
    }
    if (total > WORLD_SHARDS_MAX) {
        return error_set(err, TCK_ERR_LAYOUT, "the ranks hold %" PRIu64 " shards; the limit is %u", total,
                         WORLD_SHARDS_MAX);
    }
    struct world made = {0}; /* its shard part alone is used */
    struct claim *claims = sorted_claims(world, infos, counts, (uint32_t)total);
    tck_status_t status = take_claims(&made, claims, (uint32_t)total, err);
    free(claims);
    if (status != TCK_OK) {
        world_free(&made);
        return status;
    }
    free(world->shards);
    free(world->shard_ranks);
    world->shards = made.shards;
    world->shard_ranks = made.shard_ranks;
    world->shard_count = made.shard_count;
    world->layout = made.layout;
    return TCK_OK;
}

int64_t world_find_shard(const struct world *world, struct hash128 id)
{
    uint32_t low = 0, high = world->shard_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = hash128_cmp(world->shards[middle].id, id);
        if (order == 0) {
            return middle;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return -1;
}

/* ---- encodings ----------------------------------------------------------------------------------------------- */

static bool node_info_is_valid(const struct node_info *node)
{
    return name_is_safe(node->name) && name_is_safe(node->domain);
}

static bool rank_hello_is_valid(const struct rank_hello *hello)
{
    return node_info_is_valid(&hello->node);
}

SCHEMA_SHARED_PART(rank_hello, RANK_HELLO_FIELDS, rank_hello_is_valid)

/* Length of shard_ranks. */
static uint32_t rank_entries(const struct world *world)
{
    if (world->shard_count == 0) {
        return 0;
    }
    const struct world_shard *last = &world->shards[world->shard_count - 1];
    return last->first_rank + last->rank_count;
}

SCHEMA_SHARED_PART(node_info, NODE_INFO_FIELDS, schema_any)
SCHEMA_SHARED_PART(known_node, KNOWN_NODE_FIELDS, schema_any)

static bool world_shard_is_valid(const struct world_shard *shard)
{
    return shard->image_bytes <= SHARD_IMAGE_BYTES_MAX && shard->rank_count > 0;
}

SCHEMA_PART(world_shard, WORLD_SHARD_FIELDS, world_shard_is_valid)

/* Parts of the world are tables, but it is not one itself: one array has an entry per rank and no count of its own,
 * and the ranks of all shards are in one array, although each shard's ranks follow it in the encoding. */
void world_encode(const struct world *world, struct writer *w)
{
    write_u64(w, world->term);
    write_u32(w, world->world_size);
    write_u32(w, world->node_count);
    for (uint32_t i = 0; i < world->node_count; i++) {
        write_node_info(w, &world->nodes[i]);
    }
    for (uint32_t r = 0; r < world->world_size; r++) {
        write_u32(w, world->node_of_rank[r]);
    }
    write_u32(w, world->shard_count);
    write_u32(w, rank_entries(world));
    for (uint32_t i = 0; i < world->shard_count; i++) {
        const struct world_shard *shard = &world->shards[i];
        write_world_shard(w, shard);
        for (uint32_t k = 0; k < shard->rank_count; k++) {
            write_u32(w, world->shard_ranks[shard->first_rank + k]);
        }
    }
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static tck_status_t check_names_differ(const struct world *world)
{
    const char **names = new_array(world->node_count, sizeof(*names));
    tck_status_t status = TCK_OK;
    if (names == NULL) {
        return TCK_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < world->node_count; i++) {
        names[i] = world->nodes[i].name;
    }
    qsort(names, world->node_count, sizeof(*names), compare_names);
    for (uint32_t i = 1; i < world->node_count && status == TCK_OK; i++) {
        status = strcmp(names[i - 1], names[i]) == 0 ? TCK_ERR_PROTO : TCK_OK;
    }
    free(names);
    return status;
}

static tck_status_t decode_nodes(struct reader *r, struct world *world)
{
    tck_status_t status = TCK_ERR_PROTO;
    world->node_count = read_u32(r);
    if (world->node_count == 0 || world->node_count > world->world_size) {
        return TCK_ERR_PROTO;
    }
    world->nodes = schema_array(r, world->node_count, node_info_LEAST_BYTES, sizeof(*world->nodes), &status);
    for (uint32_t i = 0; !r->failed && i < world->node_count; i++) {
        world->nodes[i] = read_node_info(r);
        r->failed = r->failed || !node_info_is_valid(&world->nodes[i]);
    }
    return r->failed ? status : check_names_differ(world);
}

/* Node numbers must appear in order, as world_build gives them. */
static tck_status_t decode_ranks(struct reader *r, struct world *world)
{
    tck_status_t status = TCK_ERR_PROTO;
    uint32_t seen = 0;
    world->node_of_rank = schema_array(r, world->world_size, sizeof(uint32_t), sizeof(uint32_t), &status);
    for (uint32_t i = 0; !r->failed && i < world->world_size; i++) {
        uint32_t node = read_u32(r);
        r->failed = r->failed || node > seen || node >= world->node_count;
        seen += node == seen;
        world->node_of_rank[i] = node;
    }
    return r->failed || seen < world->node_count ? status : TCK_OK;
}

/* Reads the ranks of one shard, ascending, into shard_ranks, which has `left` free entries. */
static tck_status_t decode_shard_ranks(struct reader *r, struct world *world, const struct world_shard *shard,
                                       uint32_t left)
{
    if (shard->rank_count > left) {
        return TCK_ERR_PROTO;
    }
    uint32_t *ranks = &world->shard_ranks[shard->first_rank];
    for (uint32_t k = 0; k < shard->rank_count; k++) {
        ranks[k] = read_u32(r);
        if (r->failed || ranks[k] >= world->world_size || (k > 0 && ranks[k - 1] >= ranks[k])) {
            return TCK_ERR_PROTO;
        }
    }
    return TCK_OK;
}

/* Fills the shards and their ranks, total in all; ids ascend. */
static tck_status_t decode_shard_list(struct reader *r, struct world *world, uint32_t total)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < world->shard_count; i++) {
        struct world_shard *shard = &world->shards[i];
        *shard = read_world_shard(r);
        shard->first_rank = used;
        if (r->failed || (i > 0 && hash128_cmp(shard[-1].id, shard->id) >= 0)) {
            return TCK_ERR_PROTO;
        }
        tck_status_t status = decode_shard_ranks(r, world, shard, total - used);
        if (status != TCK_OK) {
            return status;
        }
        used += shard->rank_count;
    }
    return used == total ? TCK_OK : TCK_ERR_PROTO;
}

static tck_status_t decode_shards(struct reader *r, struct world *world)
{
    world->shard_count = read_u32(r);
    uint32_t total = read_u32(r);
    tck_status_t status = TCK_ERR_PROTO;
    if (total > WORLD_SHARDS_MAX) {
        return TCK_ERR_PROTO;
    }
    world->shards = schema_array(r, world->shard_count, world_shard_LEAST_BYTES, sizeof(*world->shards), &status);
    world->shard_ranks = schema_array(r, total, sizeof(uint32_t), sizeof(uint32_t), &status);
    if (r->failed) {
        return status;
    }
    status = decode_shard_list(r, world, total);
    return status == TCK_OK ? hash_layout(world) : status;
}

tck_status_t world_decode(struct reader *r, struct world *out, struct error *err)
{
    struct world world = {.term = read_u64(r), .world_size = 0};
    world.world_size = read_u32(r);
    tck_status_t status = world.world_size == 0 || world.world_size > WORLD_RANKS_MAX ? TCK_ERR_PROTO : TCK_OK;
    if (status == TCK_OK) {
        status = decode_nodes(r, &world);
    }
    if (status == TCK_OK) {
        status = decode_ranks(r, &world);
    }
    if (status == TCK_OK) {
        status = decode_shards(r, &world);
    }
    if (status == TCK_OK) {
        status = world_sort_agents(&world);
    }
    if (status != TCK_OK) {
        world_free(&world);
        return error_set(err, status, "malformed description of the world at byte %zu of %zu", r->pos, r->len);
    }
    *out = world;
    return TCK_OK;
}
