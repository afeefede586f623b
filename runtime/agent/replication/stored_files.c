/* SPDX-License-Identifier: Apache-2.0
 * Reads the manifest of a published version for the shards of this node. */
#include "agent/replication/stored_files.h"

#include "agent/driver/term.h"
#include "agent/storage/storage_ops.h"
#include "base/pool.h"

#include <stdlib.h>

/* What is known of the shards of this node in one version. */
struct found_files {
    struct version version;
    uint32_t count;
    struct found_file *items; /* owned */
};

/* One look. It owns all its data: nobody may wait for it any more when storage answers. */
struct look {
    struct storage_op storage;
    struct persistent *persistent;
    struct stored_files *all; /* NULL: it was given up, or its term is over */
    struct found_files files;
};

struct stored_files {
    struct stored_files_setup needs;
    struct look *under_way;
    struct found_files known;
};

static void files_free(struct found_files *files)
{
    for (uint32_t i = 0; i < files->count; i++) {
        free(files->items[i].file.crcs);
    }
    free(files->items);
    *files = (struct found_files){0};
}

static void look_free(struct look *look)
{
    files_free(&look->files);
    free(look);
}

/* In a pool thread. */
static void look_at_manifest(void *ctx)
{
    struct look *look = ctx;
    progress_begin(&look->storage.progress);
    persistent_find(look->persistent, look->files.version, look->files.items, look->files.count);
    progress_end(&look->storage.progress);
}

static void looked(void *ctx, bool canceled)
{
    struct look *look = ctx;
    struct stored_files *sf = look->all;
    struct error outcome = {0};
    storage_end(&look->storage);
    if (sf != NULL) {
        sf->under_way = NULL;
        files_free(&sf->known);
    }
    if (canceled) {
        (void)error_set(&outcome, TCK_ERR_CANCELED, "the agent is exiting");
    } else if (sf != NULL) {
        sf->known = look->files;
        look->files = (struct found_files){0};
    }
    look_free(look);
    if (sf != NULL) {
        sf->needs.looked(sf->needs.ctx, &outcome);
    }
}

static void look_give_up(void *ctx, const struct error *why)
{
    struct look *look = ctx;
    struct stored_files *sf = look->all;
    if (sf != NULL) {
        look->all = NULL;
        sf->under_way = NULL;
        sf->needs.looked(sf->needs.ctx, why);
    }
}

static struct look *look_new(struct stored_files *sf, const struct term_context *tc, struct version version)
{
    struct look *look = calloc(1, sizeof(*look));
    struct found_file *items = calloc((size_t)tc->setup.shard_count + 1, sizeof(*items));
    if (look == NULL || items == NULL) {
        free(look);
        free(items);
        return NULL;
    }
    *look = (struct look){.persistent = sf->needs.persistent, .all = sf, .files = {.version = version, .items = items}};
    for (uint32_t i = 0; i < tc->setup.shard_count; i++) {
        if (!tc->local_shards[i].gone) {
            items[look->files.count++].shard = tc->shards[i].id;
        }
    }
    look->storage = (struct storage_op){.what = "a restore from storage", .give_up = look_give_up, .ctx = look};
    return look;
}

tck_status_t stored_files_look(struct stored_files *sf, const struct term_context *tc, struct version version,
                               struct error *err)
{
    struct look *look = sf->under_way == NULL ? look_new(sf, tc, version) : NULL;
    if (sf->under_way != NULL) {
        return TCK_OK;
    }
    if (look == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "out of memory");
    }
    storage_begin(&look->storage, sf->needs.storage_ops, NULL);
    if (pool_submit(sf->needs.io, look_at_manifest, looked, look) != TCK_OK) {
        storage_end(&look->storage);
        look_free(look);
        return error_set(err, TCK_ERR_NOMEM, "out of memory");
    }
    sf->under_way = look;
    return TCK_OK;
}

bool stored_files_take(struct stored_files *sf, struct version version, struct hash128 shard, struct found_file *out)
{
    struct found_files *known = &sf->known;
    uint32_t i = 0;
    while (i < known->count && !hash128_is(known->items[i].shard, shard)) {
        i++;
    }
    if (i == known->count || !version_is(known->version, version)) {
        return false;
    }
    *out = known->items[i];
    known->items[i] = known->items[--known->count];
    return true;
}

void stored_files_reset(struct stored_files *sf)
{
    if (sf->under_way != NULL) {
        sf->under_way->all = NULL;
        sf->under_way = NULL;
    }
    files_free(&sf->known);
}

tck_status_t stored_files_new(const struct stored_files_setup *setup, struct stored_files **out, struct error *err)
{
    struct stored_files *sf = calloc(1, sizeof(*sf));
    if (sf == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    sf->needs = *setup;
    *out = sf;
    return TCK_OK;
}

void stored_files_free(struct stored_files *sf)
{
    if (sf != NULL) {
        stored_files_reset(sf);
        free(sf);
    }
}
