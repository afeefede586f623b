/* SPDX-License-Identifier: Apache-2.0
 * Puts headers into one sorted table and finds out which rank each private shard belongs to: a file does not name
 * its rank, but the id of its shard is a hash that includes it. */
#include "published/file_table.h"
#include "base/image_check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES_MAX (1u << 25) /* of a version, all files together: bounds the memory for them */

/* ---- growing ----------------------------------------------------------------------------------------------------- */

static tck_status_t make_room(void **array, size_t *cap, size_t wanted, size_t member_bytes, struct error *err)
{
    if (wanted <= *cap) {
        return TCK_OK;
    }
    size_t more = *cap < 64 ? 64 : 2 * *cap;
    more = more < wanted ? wanted : more;
    void *grown = reallocarray(*array, more, member_bytes);
    if (grown == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a table of %zu", more);
    }
    *array = grown;
    *cap = more;
    return TCK_OK;
}

static tck_status_t room_for(struct table *table, size_t key_bytes, size_t dim_count, struct error *err)
{
    void *entries = table->entries, *text = table->text, *dims = table->dims;
    if (table->count >= ENTRIES_MAX) {
        return error_set(err, TCK_ERR_UNSUPPORTED, "the files have more than %u entries", ENTRIES_MAX);
    }
    tck_status_t status = make_room(&entries, &table->cap, table->count + 1, sizeof(*table->entries), err);
    table->entries = entries;
    if (status == TCK_OK) {
        status = make_room(&text, &table->text_cap, table->text_len + key_bytes, 1, err);
        table->text = text;
    }
    if (status == TCK_OK) {
        status = make_room(&dims, &table->dim_cap, table->dim_count + dim_count, sizeof(*table->dims), err);
        table->dims = dims;
    }
    return status;
}

/* ---- one header -------------------------------------------------------------------------------------------------- */

struct place {
    struct table *table;
    uint32_t file;
};

static void put_numbers(struct table *table, const uint64_t *numbers, uint32_t count)
{
    memcpy(table->dims + table->dim_count, numbers, count * sizeof(*numbers));
    table->dim_count += count;
}

static tck_status_t add_entry(void *ctx, const struct image_entry *found, struct error *err)
{
    struct place *place = ctx;
    struct table *table = place->table;
    size_t key_bytes = strlen(found->key) + 1;
    tck_status_t status = room_for(table, key_bytes, 3 * (size_t)TCK_MAX_NDIM, err);
    if (status != TCK_OK) {
        return status;
    }
    table->entries[table->count++] = (struct entry){.key = table->text_len,
                                                    .dims = table->dim_count,
                                                    .begin = found->begin,
                                                    .bytes = found->bytes,
                                                    .file = place->file,
                                                    .dtype = (uint8_t)found->dtype,
                                                    .ndim = (uint8_t)found->ndim,
                                                    .blob = found->blob};
    memcpy(table->text + table->text_len, found->key, key_bytes);
    table->text_len += key_bytes;
    put_numbers(table, found->global_shape, found->ndim);
    put_numbers(table, found->offset, found->ndim);
    put_numbers(table, found->shape, found->ndim);
    return TCK_OK;
}

static tck_status_t add_file(struct table *table, const struct manifest_file *file, uint32_t i,
                             const struct header *header, struct error *err)
{
    struct place place = {table, i};
    const struct image_visit visit = {add_entry, &place};
    uint64_t bytes = 0;
    tck_status_t status = image_walk(header->bytes, header->len, &visit, &bytes, err);
    if (status == TCK_OK && bytes != file->bytes) {
        status = error_set(err, TCK_ERR_CORRUPT, "its header describes %" PRIu64 " bytes, its manifest %" PRIu64, bytes,
                           file->bytes);
    }
    return status;
}

/* Where headers come from: those that are there already, or, without them, the files. */
struct header_source {
    struct chunks *chunks;
    const struct headers *headers;
};

static tck_status_t read_file(struct table *table, const struct header_source *from, uint32_t i,
                              struct hash128 *hash_out, struct error *err)
{
    struct header read = {0};
    tck_status_t status = from->headers == NULL ? header_read(from->chunks, i, &read, err) : TCK_OK;
    const struct header *header = from->headers == NULL ? &read : &from->headers->of[i];
    if (status == TCK_OK) {
        status = add_file(table, &from->chunks->from.manifest->files[i], i, header, err);
    }
    if (status == TCK_OK) {
        *hash_out = hash128_of(header->bytes, header->len);
    }
    free(read.bytes);
    return status;
}

static tck_status_t read_files(struct table *table, const struct header_source *from, struct hash128 *hashes,
                               struct error *err)
{
    const struct manifest *manifest = from->chunks->from.manifest;
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        tck_status_t status = read_file(table, from, i, &hashes[i], err);
        if (status != TCK_OK) {
            return error_prefix(err, "%s", manifest->files[i].name);
        }
    }
    return TCK_OK;
}

/* ---- owners ------------------------------------------------------------------------------------------------------ */

/* Finds the private shards of this rank with this piece number: their ids equal the id computed with their header's
 * hash. */
static bool find_rank(struct table *table, const struct manifest *manifest, const struct hash128 *hashes, uint32_t rank,
                      uint32_t piece)
{
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        if (table->ranks[i] == NONE32 &&
            hash128_is(shard_id("", piece, rank, manifest->world_size, hashes[i]), manifest->files[i].shard)) {
            table->ranks[i] = rank;
            return true;
        }
    }
    return false;
}

/* A rank has one private shard of each piece number, from 0 on. */
static void find_ranks(struct table *table, const struct manifest *manifest, const struct hash128 *hashes)
{
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        table->ranks[i] = NONE32;
    }
    for (uint32_t rank = 0; rank < manifest->world_size; rank++) {
        uint32_t piece = 0;
        while (find_rank(table, manifest, hashes, rank, piece)) {
            piece++;
        }
    }
    for (size_t i = 0; i < table->count; i++) {
        table->entries[i].rank = table->ranks[table->entries[i].file];
    }
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

const char *entry_key(const struct table *table, const struct entry *entry)
{
    return table->text + entry->key;
}

struct box entry_box(const struct table *table, const struct entry *entry)
{
    struct box box = {.ndim = entry->ndim};
    const uint64_t *dims = table->dims + entry->dims + entry->ndim;
    memcpy(box.at, dims, entry->ndim * sizeof(*dims));
    memcpy(box.size, dims + entry->ndim, entry->ndim * sizeof(*dims));
    return box;
}

const uint64_t *entry_global(const struct table *table, const struct entry *entry)
{
    return table->dims + entry->dims;
}

static int compare_u64(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

/* Entries of one tensor have the same ndim (check_tensors), so this never reads beyond their numbers. */
static int compare_places(const struct table *table, const struct entry *x, const struct entry *y)
{
    int order = x->ndim != y->ndim ? compare_u64(x->ndim, y->ndim) : (int)x->blob - (int)y->blob;
    for (uint32_t i = x->ndim; i < 3u * x->ndim && order == 0; i++) {
        order = compare_u64(table->dims[x->dims + i], table->dims[y->dims + i]);
    }
    return order;
}

static int compare_entries(const void *a, const void *b, void *table)
{
    const struct entry *x = a, *y = b;
    int order = strcmp(entry_key(table, x), entry_key(table, y));
    if (order == 0) {
        order = compare_places(table, x, y);
    }
    if (order == 0) { /* + 1: NONE32, the shared ones, come first */
        order = compare_u64(x->rank + UINT32_C(1), y->rank + UINT32_C(1));
    }
    return order == 0 ? compare_u64(x->file, y->file) : order;
}

/* Checks that all entries with the same key agree on the whole tensor. */
static tck_status_t check_tensors(const struct table *table, const struct chunks *chunks, struct error *err)
{
    for (size_t i = 1; i < table->count; i++) {
        const struct entry *x = &table->entries[i - 1], *y = &table->entries[i];
        if (strcmp(entry_key(table, x), entry_key(table, y)) != 0) {
            continue;
        }
        if (x->blob != y->blob ||
            (!x->blob && (x->dtype != y->dtype || x->ndim != y->ndim ||
                          memcmp(entry_global(table, x), entry_global(table, y), x->ndim * sizeof(uint64_t)) != 0))) {
            return error_set(err, TCK_ERR_CORRUPT, "%s and %s differ in dtype or global shape of \"%.200s\"",
                             chunks->from.manifest->files[x->file].name, chunks->from.manifest->files[y->file].name,
                             entry_key(table, x));
        }
    }
    return TCK_OK;
}

/* Drops pieces that were saved more than once, by several groups of ranks or by groups that overlap. */
static void drop_copies(struct table *table)
{
    size_t kept = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct entry *entry = &table->entries[i], *before = kept == 0 ? NULL : &table->entries[kept - 1];
        bool copy = before != NULL && !entry->blob && entry->rank == NONE32 && before->rank == NONE32 &&
                    strcmp(entry_key(table, before), entry_key(table, entry)) == 0 &&
                    compare_places(table, before, entry) == 0;
        if (!copy) {
            table->entries[kept++] = *entry;
        }
    }
    table->count = kept;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static tck_status_t table_from(struct table *table, const struct header_source *from, struct error *err)
{
    struct chunks *chunks = from->chunks;
    uint32_t file_count = chunks->from.manifest->file_count;
    struct hash128 *hashes = calloc(file_count, sizeof(*hashes));
    *table = (struct table){.ranks = calloc(file_count, sizeof(*table->ranks))};
    tck_status_t status = hashes == NULL || table->ranks == NULL
                              ? error_set(err, TCK_ERR_NOMEM, "no memory for %" PRIu32 " headers", file_count)
                              : read_files(table, from, hashes, err);
    if (status == TCK_OK) {
        find_ranks(table, chunks->from.manifest, hashes);
        if (table->count > 0) {
            qsort_r(table->entries, table->count, sizeof(*table->entries), compare_entries, table);
        }
        status = check_tensors(table, chunks, err);
        drop_copies(table);
    }
    free(hashes);
    if (status != TCK_OK) {
        table_free(table);
    }
    return status;
}

/* Whatever is wrong with .index, the headers of the files count. */
static tck_status_t table_of_index(struct table *table, struct chunks *chunks, struct error *err)
{
    const struct manifest *manifest = chunks->from.manifest;
    struct headers headers = {0};
    struct table made = {0};
    uint8_t *index = malloc(manifest->index.bytes);
    tck_status_t status = index == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory for " VERSION_INDEX_NAME)
                                        : headers_new(manifest->file_count, &headers, err);
    if (status == TCK_OK) {
        status = chunks_read(chunks, chunks_index(chunks), 0, manifest->index.bytes, index, err);
    }
    if (status == TCK_OK) {
        status = headers_of_index(&headers, manifest, index, manifest->index.bytes, err);
    }
    free(index);
    if (status == TCK_OK) {
        status = table_of(&made, chunks, &headers, err);
    }
    if (status == TCK_OK) {
        *table = made;
    }
    headers_free(&headers);
    return status;
}

tck_status_t table_read(struct table *table, struct chunks *chunks, struct error *err)
{
    struct error why;
    if (chunks->from.manifest->index.bytes > 0) {
        if (table_of_index(table, chunks, &why) == TCK_OK) {
            return TCK_OK;
        }
        headers_without_index(chunks, &why);
    }
    return table_from(table, &(struct header_source){chunks, NULL}, err);
}

tck_status_t table_of(struct table *table, struct chunks *chunks, const struct headers *headers, struct error *err)
{
    return table_from(table, &(struct header_source){chunks, headers}, err);
}

void table_free(struct table *table)
{
    free(table->entries);
    free(table->text);
    free(table->dims);
    free(table->ranks);
    *table = (struct table){0};
}

const struct entry *table_find(const struct table *table, const char *key, size_t *count_out)
{
    size_t low = 0, high = table->count, end;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(entry_key(table, &table->entries[middle]), key) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (end = low; end < table->count && strcmp(entry_key(table, &table->entries[end]), key) == 0; end++) {
    }
    *count_out = end - low;
    return end == low ? NULL : &table->entries[low];
}
