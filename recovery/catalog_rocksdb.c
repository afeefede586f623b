/* SPDX-License-Identifier: Apache-2.0
 * The catalog in RocksDB. It has small buffers, since it is an index of some thousand rows. A torn tail of its log is
 * tolerated; any other damage is never ignored: the whole catalog is then set aside. */
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "recovery/catalog_codec.h"

#include <errno.h>
#include <inttypes.h>
#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct catalog {
    char dir[CONFIG_PATH];
    rocksdb_t *db;
    rocksdb_options_t *options;
    rocksdb_writeoptions_t *lazy, *synced;
    rocksdb_readoptions_t *reading;
};

/* Turns RocksDB's text into ours and frees it. */
static tck_status_t fail(const struct catalog *catalog, const char *what, char *text, struct error *err)
{
    tck_status_t status = strncmp(text, "Corruption", strlen("Corruption")) == 0 ? TCK_ERR_CORRUPT : TCK_ERR_IO;
    error_set(err, status, "catalog %s: %s: %s", catalog->dir, what, text);
    rocksdb_free(text);
    return status;
}

/* ---- open ---------------------------------------------------------------------------------------------------- */

static void set_block_cache(rocksdb_options_t *options)
{
    rocksdb_cache_t *cache = rocksdb_cache_create_lru(1 << 20);
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_block_cache(table, cache);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 1);
    rocksdb_options_set_block_based_table_factory(options, table);
    rocksdb_block_based_options_destroy(table);
    rocksdb_cache_destroy(cache); /* the table factory keeps its own reference */
}

static rocksdb_options_t *make_options(void)
{
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_paranoid_checks(options, 1);
    rocksdb_options_set_wal_recovery_mode(options, rocksdb_tolerate_corrupted_tail_records_recovery);
    rocksdb_options_set_recycle_log_file_num(options, 0); /* recycled logs and that mode do not go together */
    rocksdb_options_set_write_buffer_size(options, 4 << 20);
    rocksdb_options_set_max_write_buffer_number(options, 2);
    rocksdb_options_set_db_write_buffer_size(options, 8 << 20);
    rocksdb_options_set_max_total_wal_size(options, 16 << 20);
    rocksdb_options_set_max_manifest_file_size(options, 1 << 20);
    rocksdb_options_set_max_open_files(options, 64);
    rocksdb_options_set_max_background_jobs(options, 1);
    rocksdb_options_set_compression(options, rocksdb_no_compression);
    rocksdb_options_set_info_log_level(options, 2 /* warnings */);
    rocksdb_options_set_keep_log_file_num(options, 2);
    rocksdb_options_set_stats_dump_period_sec(options, 0);
    rocksdb_options_set_stats_persist_period_sec(options, 0);
    set_block_cache(options);
    return options;
}

/* The texts with which RocksDB says that another process, or this one, has the catalog open. */
static bool is_lock_error(const char *text)
{
    static const char *const forms[] = {"IO error: lock hold by current process", "IO error: While lock file"};
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        if (strncmp(text, forms[i], strlen(forms[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* Failures of the machine: moving the catalog aside would not help. */
static bool is_machine_error(const char *text)
{
    static const int errnums[] = {ENOSPC, EDQUOT, EACCES, EPERM, EROFS, EMFILE, ENFILE, ENOMEM};
    for (size_t i = 0; i < sizeof(errnums) / sizeof(*errnums); i++) {
        if (strstr(text, strerrordesc_np(errnums[i])) != NULL) {
            return true;
        }
    }
    return false;
}

static tck_status_t move_aside(const struct catalog *catalog, const char *text, struct error *err)
{
    char aside[CONFIG_PATH + 32];
    snprintf(aside, sizeof(aside), "%s.bad-%" PRIu64, catalog->dir, clock_wall_ms());
    if (rename(catalog->dir, aside) != 0) {
        return error_set(err, status_of_errno(errno), "catalog %s: %s; cannot be moved to %s: %m", catalog->dir, text,
                         aside);
    }
    log_warn("catalog %s does not open (%s): moved to %s, a new one is built", catalog->dir, text, aside);
    return TCK_OK;
}

static tck_status_t open_db(struct catalog *catalog, bool *rebuilt_out, struct error *err)
{
    char *text = NULL;
    *rebuilt_out = false;
    if (failpoint_fails(catalog, open)) {
        return error_set(err, status_of_errno(errno), "catalog %s: open: %m", catalog->dir);
    }
    catalog->db = rocksdb_open(catalog->options, catalog->dir, &text);
    if (text == NULL) {
        return TCK_OK;
    }
    if (is_lock_error(text)) {
        rocksdb_free(text);
        return error_set(err, TCK_ERR_BUSY, "catalog %s is in use by another process", catalog->dir);
    }
    if (is_machine_error(text)) {
        return fail(catalog, "open", text, err);
    }
    tck_status_t status = move_aside(catalog, text, err);
    rocksdb_free(text);
    if (status != TCK_OK) {
        return status;
    }
    text = NULL;
    catalog->db = rocksdb_open(catalog->options, catalog->dir, &text);
    if (text != NULL) {
        return fail(catalog, "build anew", text, err);
    }
    *rebuilt_out = true;
    return TCK_OK;
}

tck_status_t catalog_open(const char *dir, struct catalog **out, bool *rebuilt_out, struct error *err)
{
    if (strlen(dir) >= CONFIG_PATH) {
        return error_set(err, TCK_ERR_CONFIG, "catalog directory has %zu bytes, %d are allowed: %s", strlen(dir),
                         CONFIG_PATH - 1, dir);
    }
    struct catalog *catalog = calloc(1, sizeof(*catalog));
    if (catalog == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "catalog %s", dir);
    }
    snprintf(catalog->dir, sizeof(catalog->dir), "%s", dir);
    catalog->options = make_options();
    catalog->lazy = rocksdb_writeoptions_create();
    catalog->synced = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(catalog->synced, 1);
    catalog->reading = rocksdb_readoptions_create();
    bool rebuilt;
    tck_status_t status = open_db(catalog, &rebuilt, err);
    if (status != TCK_OK) {
        catalog_close(catalog);
        return status;
    }
    *out = catalog;
    *rebuilt_out = rebuilt;
    return TCK_OK;
}

void catalog_close(struct catalog *catalog)
{
    if (catalog == NULL) {
        return;
    }
    if (catalog->db != NULL) {
        rocksdb_close(catalog->db);
    }
    rocksdb_readoptions_destroy(catalog->reading);
    rocksdb_writeoptions_destroy(catalog->synced);
    rocksdb_writeoptions_destroy(catalog->lazy);
    rocksdb_options_destroy(catalog->options);
    free(catalog);
}

/* ---- write --------------------------------------------------------------------------------------------------- */

/* Adds the row and empties the writer; false if the value could not be built. */
static bool batch_put(rocksdb_writebatch_t *batch, struct catalog_key key, struct writer *w)
{
    bool built = !w->failed;
    if (built) {
        rocksdb_writebatch_put(batch, (const char *)key.bytes, key.len, (const char *)w->data, w->len);
    }
    writer_free(w);
    return built;
}

static tck_status_t batch_write(struct catalog *catalog, rocksdb_writebatch_t *batch, bool sync, struct error *err)
{
    char *text = NULL;
    if (failpoint_fails(catalog, write)) {
        return error_set(err, status_of_errno(errno), "catalog %s: write: %m", catalog->dir);
    }
    rocksdb_write(catalog->db, sync ? catalog->synced : catalog->lazy, batch, &text);
    return text == NULL ? TCK_OK : fail(catalog, "write", text, err);
}

static bool batch_put_shards(rocksdb_writebatch_t *batch, const struct catalog_shard *shards, uint32_t count)
{
    bool built = true;
    for (uint32_t i = 0; i < count && built; i++) {
        struct writer w = writer_new(0);
        catalog_shard_encode(&shards[i], &w);
        built = batch_put(batch, catalog_shard_key(shards[i].version, shards[i].shard), &w);
    }
    return built;
}

tck_status_t catalog_put(struct catalog *catalog, const struct catalog_version *version,
                         const struct catalog_shard *shards, uint32_t shard_count, bool sync, struct error *err)
{
    rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
    struct writer w = writer_new(0);
    catalog_version_encode(version, &w);
    bool built =
        batch_put(batch, catalog_version_key(version->version), &w) && batch_put_shards(batch, shards, shard_count);
    tck_status_t status =
        built ? batch_write(catalog, batch, sync, err) : error_set(err, TCK_ERR_NOMEM, "catalog %s: row", catalog->dir);
    rocksdb_writebatch_destroy(batch);
    return status;
}

/* A key that follows every key beginning with this one and has at most CATALOG_KEY_BYTES. */
static struct catalog_key after_all_of(struct catalog_key key)
{
    memset(key.bytes + key.len, 0xff, sizeof(key.bytes) - key.len);
    key.len = sizeof(key.bytes);
    return key;
}

tck_status_t catalog_drop(struct catalog *catalog, struct version version, struct error *err)
{
    struct catalog_key row = catalog_version_key(version), first = catalog_shards_key(version);
    struct catalog_key end = after_all_of(first);
    rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
    rocksdb_writebatch_delete(batch, (const char *)row.bytes, row.len);
    rocksdb_writebatch_delete_range(batch, (const char *)first.bytes, first.len, (const char *)end.bytes, end.len);
    tck_status_t status = batch_write(catalog, batch, false, err);
    rocksdb_writebatch_destroy(batch);
    return status;
}

tck_status_t catalog_remember_node(struct catalog *catalog, const struct node_info *node, uint64_t term,
                                   struct error *err)
{
    struct known_node row = {.node = *node, .term = term};
    rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
    struct writer w = writer_new(0);
    catalog_node_encode(&row, &w);
    tck_status_t status = batch_put(batch, catalog_node_key(node->name), &w)
                              ? batch_write(catalog, batch, false, err)
                              : error_set(err, TCK_ERR_NOMEM, "catalog %s: row", catalog->dir);
    rocksdb_writebatch_destroy(batch);
    return status;
}

tck_status_t catalog_forget_nodes(struct catalog *catalog, const struct known_node *nodes, size_t count,
                                  struct error *err)
{
    rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
    for (size_t i = 0; i < count; i++) {
        struct catalog_key key = catalog_node_key(nodes[i].node.name);
        rocksdb_writebatch_delete(batch, (const char *)key.bytes, key.len);
    }
    tck_status_t status = batch_write(catalog, batch, false, err);
    rocksdb_writebatch_destroy(batch);
    return status;
}

/* ---- read ---------------------------------------------------------------------------------------------------- */

/* Decodes a value into an item and returns the key that belongs to it. */
typedef tck_status_t decode_row_fn(const void *data, size_t len, void *item, struct catalog_key *key_out);

static tck_status_t decode_version_row(const void *data, size_t len, void *item, struct catalog_key *key_out)
{
    struct catalog_version *version = item;
    tck_status_t status = catalog_version_decode(data, len, version);
    *key_out = catalog_version_key(version->version);
    return status;
}

static tck_status_t decode_shard_row(const void *data, size_t len, void *item, struct catalog_key *key_out)
{
    struct catalog_shard *shard = item;
    tck_status_t status = catalog_shard_decode(data, len, shard);
    *key_out = catalog_shard_key(shard->version, shard->shard);
    return status;
}

static tck_status_t decode_node_row(const void *data, size_t len, void *item, struct catalog_key *key_out)
{
    struct known_node *node = item;
    tck_status_t status = catalog_node_decode(data, len, node);
    *key_out = catalog_node_key(node->node.name);
    return status;
}

struct rows {
    size_t item_bytes;
    decode_row_fn *decode;
    bool backwards;
    char *items;
    size_t count, cap;
};

/* Room for one more item, zeroed; NULL if out of memory. */
static void *rows_next(struct rows *rows)
{
    if (rows->count == rows->cap) {
        size_t cap = rows->cap == 0 ? 16 : 2 * rows->cap;
        char *items = realloc(rows->items, cap * rows->item_bytes);
        if (items == NULL) {
            return NULL;
        }
        rows->items = items;
        rows->cap = cap;
    }
    void *item = rows->items + rows->count * rows->item_bytes;
    memset(item, 0, rows->item_bytes);
    return item;
}

/* Takes the row at the iterator; one that does not decode, or belongs to another key, is skipped. */
static bool rows_add(struct rows *rows, const struct catalog *catalog, const rocksdb_iterator_t *it)
{
    size_t key_len, len;
    const char *key = rocksdb_iter_key(it, &key_len);
    const char *value = rocksdb_iter_value(it, &len);
    struct catalog_key belongs = {0};
    void *item = rows_next(rows);
    if (item == NULL) {
        return false;
    }
    if (rows->decode(value, len, item, &belongs) == TCK_OK && belongs.len == key_len &&
        memcmp(belongs.bytes, key, key_len) == 0) {
        rows->count++;
    } else {
        log_warn("catalog %s: a row of kind '%c' with %zu bytes is malformed and skipped", catalog->dir, key[0], len);
    }
    return true;
}

static bool at_prefix(const rocksdb_iterator_t *it, const struct catalog_key *prefix)
{
    size_t len;
    if (!rocksdb_iter_valid(it)) {
        return false;
    }
    const char *key = rocksdb_iter_key(it, &len);
    return len >= prefix->len && memcmp(key, prefix->bytes, prefix->len) == 0;
}

/* All rows whose key begins with prefix. */
static tck_status_t read_rows(struct catalog *catalog, struct catalog_key prefix, struct rows *rows, struct error *err)
{
    rocksdb_iterator_t *it = rocksdb_create_iterator(catalog->db, catalog->reading);
    struct catalog_key end = after_all_of(prefix);
    if (rows->backwards) {
        rocksdb_iter_seek_for_prev(it, (const char *)end.bytes, end.len);
    } else {
        rocksdb_iter_seek(it, (const char *)prefix.bytes, prefix.len);
    }
    bool memory = rows_next(rows) != NULL; /* so that no rows are not NULL */
    while (memory && at_prefix(it, &prefix)) {
        memory = rows_add(rows, catalog, it);
        rows->backwards ? rocksdb_iter_prev(it) : rocksdb_iter_next(it);
    }
    char *text = NULL;
    rocksdb_iter_get_error(it, &text);
    rocksdb_iter_destroy(it);
    tck_status_t status = TCK_OK;
    if (text != NULL) {
        status = fail(catalog, "read", text, err);
    } else if (!memory) {
        status = error_set(err, TCK_ERR_NOMEM, "catalog %s: %zu rows", catalog->dir, rows->count);
    }
    if (status != TCK_OK) {
        free(rows->items);
    }
    return status;
}

tck_status_t catalog_versions(struct catalog *catalog, struct catalog_version **out, size_t *count_out,
                              struct error *err)
{
    struct rows rows = {.item_bytes = sizeof(struct catalog_version), .decode = decode_version_row, .backwards = true};
    tck_status_t status = read_rows(catalog, catalog_kind_key(CATALOG_KIND_VERSION), &rows, err);
    if (status == TCK_OK) {
        *out = (void *)rows.items;
        *count_out = rows.count;
    }
    return status;
}

tck_status_t catalog_shards(struct catalog *catalog, struct version version, struct catalog_shard **out,
                            size_t *count_out, struct error *err)
{
    struct rows rows = {.item_bytes = sizeof(struct catalog_shard), .decode = decode_shard_row};
    tck_status_t status = read_rows(catalog, catalog_shards_key(version), &rows, err);
    if (status == TCK_OK) {
        *out = (void *)rows.items;
        *count_out = rows.count;
    }
    return status;
}

tck_status_t catalog_nodes(struct catalog *catalog, struct known_node **out, size_t *count_out, struct error *err)
{
    struct rows rows = {.item_bytes = sizeof(struct known_node), .decode = decode_node_row};
    tck_status_t status = read_rows(catalog, catalog_kind_key(CATALOG_KIND_NODE), &rows, err);
    if (status == TCK_OK) {
        *out = (void *)rows.items;
        *count_out = rows.count;
    }
    return status;
}
