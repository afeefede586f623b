/* SPDX-License-Identifier: Apache-2.0
 * The catalog of each machine (recovery/catalog.h), on its own disk: it outlives agents, and may be lost with the
 * machine or alone. Most schedules have no catalogs, because they are only a hint. */
#include "sim.h"

#include "heap.h"
#include "recovery/catalog.h"

#include <stdlib.h>
#include <string.h>

/* All catalogs of a large job contain the same nodes, so each node is stored once. */
struct shared_node {
    struct shared_node *next;
    struct node_info node;
};
static struct shared_node *shared_nodes[4096]; /* by the hash of the name */

struct catalog_node {
    const struct node_info *node;
    uint64_t term;
};

struct catalog {
    struct catalog *next;
    const struct host *host;
    struct catalog_version *rows;
    struct catalog_node *nodes; /* sorted by name */
    size_t row_count, node_count;
};

static struct catalog *all;
static bool was_lost;

static struct catalog *catalog_of(const struct host *host)
{
    struct catalog *catalog = all;
    while (catalog != NULL && catalog->host != host) {
        catalog = catalog->next;
    }
    return catalog;
}

void catalog_lose(const struct host *host)
{
    struct catalog *catalog = catalog_of(host);
    if (catalog != NULL) {
        catalog->row_count = catalog->node_count = 0;
        was_lost = true;
    }
}

bool catalog_is_complete(void)
{
    return all != NULL && !was_lost;
}

tck_status_t catalog_open(const char *dir, struct catalog **out, bool *rebuilt_out, struct error *err)
{
    (void)dir;
    if (!sim_trait(TRAIT_CATALOG)) {
        return error_set(err, TCK_ERR_IO, "the world has none");
    }
    struct catalog *catalog = catalog_of(sim.current);
    if (catalog == NULL) {
        catalog = calloc(1, sizeof(*catalog));
        if (catalog == NULL) {
            return error_set(err, TCK_ERR_NOMEM, "out of memory");
        }
        *catalog = (struct catalog){.next = all, .host = sim.current};
        all = catalog;
    }
    *rebuilt_out = sim_chance(5);
    if (*rebuilt_out) {
        sim_log("%s loses its catalog", sim.current->name);
        catalog_lose(sim.current);
    }
    *out = catalog;
    return TCK_OK;
}

void catalog_close(struct catalog *catalog)
{
    (void)catalog;
}

/* Reallocates the array with room for one more item. */
static void *grow_array(void *items, size_t count, size_t bytes)
{
    void *more = realloc(items, (count + 1) * bytes);
    if (more == NULL) {
        abort();
    }
    return more;
}

static void *copy_of(const void *items, size_t count, size_t bytes)
{
    void *copy = calloc(count + 1, bytes);
    if (copy == NULL) {
        abort();
    }
    if (count > 0) {
        memcpy(copy, items, count * bytes);
    }
    return copy;
}

/* ---- versions, newest first -------------------------------------------------------------------------------------- */

static size_t index_of(const struct catalog *catalog, struct version version)
{
    size_t at = 0;
    while (at < catalog->row_count && version_cmp(catalog->rows[at].version, version) > 0) {
        at++;
    }
    return at;
}

static bool has_at(const struct catalog *catalog, size_t at, struct version version)
{
    return at < catalog->row_count && version_is(catalog->rows[at].version, version);
}

tck_status_t catalog_put(struct catalog *catalog, const struct catalog_version *version,
                         const struct catalog_shard *shards, uint32_t shard_count, bool sync, struct error *err)
{
    (void)shards, (void)shard_count, (void)sync, (void)err;
    size_t at = index_of(catalog, version->version);
    if (!has_at(catalog, at, version->version)) {
        catalog->rows = grow_array(catalog->rows, catalog->row_count, sizeof(*catalog->rows));
        memmove(&catalog->rows[at + 1], &catalog->rows[at], (catalog->row_count++ - at) * sizeof(*catalog->rows));
    }
    catalog->rows[at] = *version;
    return TCK_OK;
}

tck_status_t catalog_drop(struct catalog *catalog, struct version version, struct error *err)
{
    (void)err;
    size_t at = index_of(catalog, version);
    if (has_at(catalog, at, version)) {
        memmove(&catalog->rows[at], &catalog->rows[at + 1], (--catalog->row_count - at) * sizeof(*catalog->rows));
    }
    return TCK_OK;
}

tck_status_t catalog_versions(struct catalog *catalog, struct catalog_version **out, size_t *count_out,
                              struct error *err)
{
    (void)err;
    *out = copy_of(catalog->rows, catalog->row_count, sizeof(**out));
    *count_out = catalog->row_count;
    return TCK_OK;
}

/* Only users query these rows. */
tck_status_t catalog_shards(struct catalog *catalog, struct version version, struct catalog_shard **out,
                            size_t *count_out, struct error *err)
{
    (void)catalog, (void)version, (void)out, (void)count_out;
    return error_set(err, TCK_ERR_NOENT, "the world keeps none");
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static const struct node_info *shared_node_of(const struct node_info *node)
{
    struct hash128 hash = hash128_of(node->name, strlen(node->name));
    struct shared_node **first = &shared_nodes[hash.lo % (sizeof(shared_nodes) / sizeof(shared_nodes[0]))], *one;
    for (one = *first; one != NULL && memcmp(&one->node, node, sizeof(*node)) != 0; one = one->next) {
    }
    if (one == NULL) {
        one = malloc(sizeof(*one));
        if (one == NULL) {
            abort();
        }
        *one = (struct shared_node){*first, *node};
        *first = one;
    }
    return &one->node;
}

/* The index of the first node whose name is not less than this one. */
static size_t node_place(const struct catalog *catalog, const char *name)
{
    size_t low = 0, high = catalog->node_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(catalog->nodes[middle].node->name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

tck_status_t catalog_remember_node(struct catalog *catalog, const struct node_info *node, uint64_t term,
                                   struct error *err)
{
    (void)err;
    size_t at = node_place(catalog, node->name);
    if (at == catalog->node_count || strcmp(catalog->nodes[at].node->name, node->name) != 0) {
        catalog->nodes = grow_array(catalog->nodes, catalog->node_count, sizeof(*catalog->nodes));
        memmove(&catalog->nodes[at + 1], &catalog->nodes[at], (catalog->node_count++ - at) * sizeof(*catalog->nodes));
    }
    catalog->nodes[at] = (struct catalog_node){shared_node_of(node), term};
    return TCK_OK;
}

tck_status_t catalog_forget_nodes(struct catalog *catalog, const struct known_node *nodes, size_t count,
                                  struct error *err)
{
    (void)err;
    for (size_t i = 0; i < count; i++) {
        size_t at = node_place(catalog, nodes[i].node.name);
        if (at < catalog->node_count && strcmp(catalog->nodes[at].node->name, nodes[i].node.name) == 0) {
            memmove(&catalog->nodes[at], &catalog->nodes[at + 1],
                    (--catalog->node_count - at) * sizeof(*catalog->nodes));
        }
    }
    return TCK_OK;
}

tck_status_t catalog_nodes(struct catalog *catalog, struct known_node **out, size_t *count_out, struct error *err)
{
    struct known_node *copy = calloc(catalog->node_count + 1, sizeof(*copy));
    if (copy == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < catalog->node_count; i++) {
        copy[i] = (struct known_node){.node = *catalog->nodes[i].node, .term = catalog->nodes[i].term};
    }
    heap_give(copy, sim.current->heap_owner);
    *out = copy;
    *count_out = catalog->node_count;
    return TCK_OK;
}
