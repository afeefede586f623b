/* SPDX-License-Identifier: Apache-2.0
 * The functions of tierckpt.h that read published versions. */
#include "published/published.h"

#include "base/world.h"
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct error open_error; /* there is no handle to keep it in */

const char *tck_published_errmsg(const tck_published_t *published)
{
    return published == NULL ? open_error.text : published->error.text;
}

void published_set_error(const struct error *err)
{
    open_error = *err;
}

void published_file_name(struct hash128 shard, char *out, size_t size)
{
    char name[MANIFEST_FILE_NAME];
    manifest_file_name(shard, name);
    snprintf(out, size, "%s", name);
}

/* ---- open -------------------------------------------------------------------------------------------------------- */

static tck_status_t find_as_asked(const tck_published_open_params_t *params, struct found *out, uint32_t *limit_ms_out,
                                  struct error *err)
{
    struct config config;
    tck_status_t status = params->path != NULL ? config_defaults(&config, err)
                                               : config_load(params->config_file, params->config_json, &config, err);
    if (status != TCK_OK) {
        return status;
    }
    *limit_ms_out = config.storage_timeout_ms;
    return params->path != NULL ? find_by_path(params->path, config.storage_timeout_ms, out, err)
                                : find_version(&config, (struct version){.step = params->step}, out, err);
}

static tck_status_t open_files(struct tck_published *published, uint32_t limit_ms, struct error *err)
{
    const struct manifest *manifest = &published->found.manifest;
    if (manifest->world_size > WORLD_RANKS_MAX) {
        return error_set(err, TCK_ERR_CORRUPT, "a world of %" PRIu32 " ranks", manifest->world_size);
    }
    const struct chunks_source from = {
        .dir = &published->found.dir, .path = published->found.path, .manifest = manifest, .limit_ms = limit_ms};
    return chunks_open(&published->chunks, &from, err);
}

tck_status_t published_begin(const struct config *config, struct version version, bool files_unseen,
                             struct tck_published **out, struct error *err)
{
    struct tck_published *published = calloc(1, sizeof(*published));
    if (published == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a version");
    }
    published->found.dir = FOLDER_NONE;
    tck_status_t status = files_unseen ? find_files_unseen(config, version, &published->found, err)
                                       : find_version(config, version, &published->found, err);
    if (status == TCK_OK) {
        status = open_files(published, config->storage_timeout_ms, err);
    }
    if (status != TCK_OK) {
        tck_published_close(published);
        return status;
    }
    *out = published;
    return TCK_OK;
}

bool published_own(const struct tck_published *published, const char *key, const struct box *box, uint32_t rank,
                   uint64_t *index_out, uint32_t *owners_out)
{
    size_t count = 0;
    bool found = false;
    const struct entry *entries = table_find(&published->table, key, &count);
    *owners_out = 0;
    for (size_t i = 0; i < count; i++) {
        struct box saved = entry_box(&published->table, &entries[i]);
        bool same = entries[i].rank != NONE32 && box_is(&saved, box);
        *owners_out += same;
        if (same && entries[i].rank == rank) {
            *index_out = (uint64_t)(&entries[i] - published->table.entries);
            found = true;
        }
    }
    return found;
}

static tck_status_t open_published(struct tck_published *published, const tck_published_open_params_t *params,
                                   struct error *err)
{
    published->found.dir = FOLDER_NONE;
    if (params->struct_size < sizeof(*params)) {
        return error_set(err, TCK_ERR_INVAL, "struct_size of the parameters is %zu, %zu is needed", params->struct_size,
                         sizeof(*params));
    }
    uint32_t limit_ms = 0;
    tck_status_t status = find_as_asked(params, &published->found, &limit_ms, err);
    if (status != TCK_OK) {
        return status;
    }
    status = open_files(published, limit_ms, err);
    if (status == TCK_OK) {
        status = table_read(&published->table, &published->chunks, err);
    }
    return status == TCK_OK ? TCK_OK : error_prefix(err, "%.200s", published->found.path);
}

tck_status_t tck_published_open(const tck_published_open_params_t *params, tck_published_t **published_out)
{
    struct tck_published *published = calloc(1, sizeof(*published));
    if (params == NULL || published_out == NULL) {
        free(published);
        return error_set(&open_error, TCK_ERR_INVAL, "no parameters or no place for the version");
    }
    if (published == NULL) {
        return error_set(&open_error, TCK_ERR_NOMEM, "no memory for a version");
    }
    tck_status_t status = open_published(published, params, &open_error);
    if (status != TCK_OK) {
        tck_published_close(published);
        return status;
    }
    *published_out = published;
    return TCK_OK;
}

void tck_published_close(tck_published_t *published)
{
    if (published == NULL) {
        return;
    }
    table_free(&published->table);
    chunks_close(&published->chunks);
    found_free(&published->found);
    free(published);
}

/* ---- contents ---------------------------------------------------------------------------------------------------- */

static tck_status_t check_pointer(struct error *err, const void *pointer, const char *function, const char *name)
{
    return pointer == NULL ? error_set(err, TCK_ERR_INVAL, "%s: %s is NULL", function, name) : TCK_OK;
}

/* If the handle is NULL, the text goes where tck_published_errmsg(NULL) finds it. */
#define check_open(published)           check_pointer(&open_error, published, __func__, "published")
#define check_given(published, pointer) check_pointer(&(published)->error, pointer, __func__, #pointer)

/* Structs with a struct_size may grow at their end. */
static tck_status_t check_size(struct tck_published *published, size_t given, size_t needed)
{
    if (given >= needed) {
        return TCK_OK;
    }
    return error_set(&published->error, TCK_ERR_INVAL, "struct_size is %zu, %zu is needed", given, needed);
}

tck_status_t tck_published_info(tck_published_t *published, tck_published_info_t *info_out)
{
    tck_status_t status = check_open(published);
    if (status == TCK_OK) {
        status = check_given(published, info_out);
    }
    if (status == TCK_OK) {
        status = check_size(published, info_out->struct_size, sizeof(*info_out));
    }
    if (status != TCK_OK) {
        return status;
    }
    const struct manifest *manifest = &published->found.manifest;
    info_out->version = (tck_version_t){manifest->version.term, manifest->version.step};
    info_out->job = manifest->job;
    info_out->path = published->found.path;
    info_out->passed_over = published->found.passed_over.text;
    info_out->wall_ms = manifest->wall_ms;
    info_out->bytes = 0;
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        info_out->bytes += manifest->files[i].bytes;
    }
    info_out->entry_count = published->table.count;
    info_out->file_count = manifest->file_count;
    info_out->world_size = manifest->world_size;
    return TCK_OK;
}

static tck_status_t entry_at(struct tck_published *published, uint64_t index, const struct entry **out)
{
    if (index >= published->table.count) {
        return error_set(&published->error, TCK_ERR_NOENT, "entry %" PRIu64 " of %zu", index, published->table.count);
    }
    *out = &published->table.entries[index];
    return TCK_OK;
}

static const char *file_of(const struct tck_published *published, const struct entry *entry)
{
    return published->found.manifest.files[entry->file].name;
}

tck_status_t tck_published_entry(tck_published_t *published, uint64_t index, tck_published_entry_t *entry_out)
{
    const struct entry *entry = NULL;
    tck_status_t status = check_open(published);
    if (status == TCK_OK) {
        status = check_given(published, entry_out);
    }
    if (status == TCK_OK) {
        status = check_size(published, entry_out->struct_size, sizeof(*entry_out));
    }
    if (status == TCK_OK) {
        status = entry_at(published, index, &entry);
    }
    if (status != TCK_OK) {
        return status;
    }
    const struct table *table = &published->table;
    const struct box box = entry_box(table, entry);
    *entry_out = (tck_published_entry_t){.struct_size = entry_out->struct_size,
                                         .key = entry_key(table, entry),
                                         .file = file_of(published, entry),
                                         .bytes = entry->bytes,
                                         .dtype = (tck_dtype_t)entry->dtype,
                                         .ndim = entry->ndim,
                                         .blob = entry->blob,
                                         .rank = entry->rank == NONE32 ? -1 : (int)entry->rank};
    memcpy(entry_out->global_shape, entry_global(table, entry), entry->ndim * sizeof(uint64_t));
    memcpy(entry_out->offset, box.at, sizeof(box.at));
    memcpy(entry_out->local_shape, box.size, sizeof(box.size));
    return TCK_OK;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

tck_status_t tck_published_read_entry(tck_published_t *published, uint64_t index, uint64_t first, uint64_t len,
                                      void *to)
{
    const struct entry *entry = NULL;
    tck_status_t status = check_open(published);
    if (status == TCK_OK && len > 0) {
        status = check_given(published, to);
    }
    if (status == TCK_OK) {
        status = entry_at(published, index, &entry);
    }
    if (status != TCK_OK) {
        return status;
    }
    if (first > entry->bytes || len > entry->bytes - first) {
        return error_set(&published->error, TCK_ERR_INVAL,
                         "\"%.200s\": %" PRIu64 " bytes from %" PRIu64 " on are not within its %" PRIu64,
                         entry_key(&published->table, entry), len, first, entry->bytes);
    }
    return chunks_read(&published->chunks, entry->file, entry->begin + first, len, to, &published->error);
}

/* ---- boxes ------------------------------------------------------------------------------------------------------- */

static tck_status_t check_box(const tck_published_box_t *box, struct error *err)
{
    uint64_t bytes = (unsigned)box->dtype < TCK_DTYPE_COUNT ? dtype_bytes(box->dtype) : 0;
    if (bytes == 0 || box->ndim > TCK_MAX_NDIM) {
        return error_set(err, TCK_ERR_INVAL, "unknown dtype %d, or %u dimensions", (int)box->dtype, box->ndim);
    }
    for (uint32_t d = 0; d < box->ndim; d++) {
        uint64_t whole = box->global_shape[d];
        if (box->offset[d] > whole || box->local_shape[d] > whole - box->offset[d] ||
            __builtin_mul_overflow(bytes, box->local_shape[d], &bytes)) {
            return error_set(err, TCK_ERR_INVAL,
                             "dimension %u: offset %" PRIu64 " and length %" PRIu64 " do not fit into %" PRIu64, d,
                             box->offset[d], box->local_shape[d], whole);
        }
    }
    return TCK_OK;
}

static uint64_t elements_of(const tck_published_box_t *box)
{
    uint64_t elements = 1;
    for (uint32_t d = 0; d < box->ndim; d++) {
        elements *= box->local_shape[d];
    }
    return elements;
}

/* Checks that the wanted box belongs to the tensor that was saved. */
static tck_status_t check_tensor(const struct table *table, const struct entry *entry, const tck_published_box_t *box,
                                 struct error *err)
{
    if (entry->blob) {
        return error_set(err, TCK_ERR_LAYOUT, "is a blob, not a tensor");
    }
    if (entry->dtype != box->dtype) {
        return error_set(err, TCK_ERR_LAYOUT, "was saved as %s, and is wanted as %s",
                         dtype_name((tck_dtype_t)entry->dtype), dtype_name(box->dtype));
    }
    if (entry->ndim != box->ndim) {
        return error_set(err, TCK_ERR_LAYOUT, "was saved with %u dimensions, and is wanted with %u", entry->ndim,
                         box->ndim);
    }
    for (uint32_t d = 0; d < box->ndim; d++) {
        uint64_t saved = entry_global(table, entry)[d];
        if (saved != box->global_shape[d]) {
            return error_set(err, TCK_ERR_LAYOUT,
                             "was saved with %" PRIu64 " in dimension %u, and is wanted with %" PRIu64, saved, d,
                             box->global_shape[d]);
        }
    }
    return TCK_OK;
}

/* Several ranks have private tensors with this name: pieces of one tensor would be at different places. */
static tck_status_t check_private(const struct entry *entries, const struct box *boxes, size_t count, struct error *err)
{
    for (size_t i = 1; i < count; i++) {
        if (entries[i - 1].rank != NONE32 && box_is(&boxes[i - 1], &boxes[i])) {
            return error_set(err, TCK_ERR_LAYOUT, "rank %" PRIu32 " and rank %" PRIu32 " each have saved their own",
                             entries[i - 1].rank, entries[i].rank);
        }
    }
    return TCK_OK;
}

static tck_status_t plan_box(const struct table *table, const struct entry *entries, size_t count,
                             const struct box *want, struct reshard *out, struct error *err)
{
    struct box *boxes = count > UINT32_MAX ? NULL : calloc(count, sizeof(*boxes));
    if (boxes == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for %zu pieces", count);
    }
    for (size_t i = 0; i < count; i++) {
        boxes[i] = entry_box(table, &entries[i]);
    }
    tck_status_t status = check_private(entries, boxes, count, err);
    if (status == TCK_OK) {
        status = reshard_find(want, boxes, (uint32_t)count, out, err);
    }
    free(boxes);
    if (status == TCK_OK && !out->covered) {
        status = error_set(err, TCK_ERR_LAYOUT,
                           "%" PRIu64 " elements from %" PRIu64 " of dimension 0 on were saved by no rank",
                           box_count(&out->missing), out->missing.at[0]);
        reshard_free(out);
    }
    return status;
}

tck_status_t published_check_whole(const struct tck_published *published, const struct entry *entry, struct error *err)
{
    const struct table *table = &published->table;
    struct box whole = {.ndim = entry->ndim};
    struct reshard plan = {0};
    size_t count = 0;
    const struct entry *entries = table_find(table, entry_key(table, entry), &count);
    memcpy(whole.size, entry_global(table, entry), entry->ndim * sizeof(uint64_t));
    tck_status_t status = plan_box(table, entries, count, &whole, &plan, err);
    reshard_free(&plan);
    return status == TCK_OK ? TCK_OK : error_prefix(err, "\"%.200s\"", entry_key(table, entry));
}

static tck_status_t read_piece(struct tck_published *published, const struct entry *entry,
                               const struct reshard_piece *piece, const struct box *want, uint8_t *to)
{
    const struct box have = entry_box(&published->table, entry);
    struct runs runs = runs_of(&piece->box, &have, want, dtype_bytes((tck_dtype_t)entry->dtype));
    uint64_t from_byte = 0, to_byte = 0;
    tck_status_t status = TCK_OK;
    while (status == TCK_OK && runs_next(&runs, &from_byte, &to_byte)) {
        status = chunks_read(&published->chunks, entry->file, entry->begin + from_byte, runs.bytes, to + to_byte,
                             &published->error);
    }
    return status;
}

static tck_status_t read_box(struct tck_published *published, const tck_published_box_t *box, void *to)
{
    struct box want = {.ndim = box->ndim};
    struct reshard plan = {0};
    size_t count = 0;
    const struct entry *entries = table_find(&published->table, box->key, &count);
    if (entries == NULL) {
        return error_set(&published->error, TCK_ERR_NOENT, "no rank has saved it");
    }
    tck_status_t status = check_tensor(&published->table, entries, box, &published->error);
    if (status != TCK_OK) {
        return status;
    }
    memcpy(want.at, box->offset, sizeof(want.at));
    memcpy(want.size, box->local_shape, sizeof(want.size));
    status = plan_box(&published->table, entries, count, &want, &plan, &published->error);
    for (uint32_t i = 0; i < plan.count && status == TCK_OK; i++) {
        status = read_piece(published, &entries[plan.pieces[i].have], &plan.pieces[i], &want, to);
    }
    reshard_free(&plan);
    return status;
}

tck_status_t tck_published_read_box(tck_published_t *published, const tck_published_box_t *box, void *to)
{
    tck_status_t status = check_open(published);
    if (status == TCK_OK) {
        status = check_given(published, box);
    }
    if (status == TCK_OK) {
        status = check_size(published, box->struct_size, sizeof(*box));
    }
    if (status == TCK_OK) {
        status = check_given(published, box->key);
    }
    if (status != TCK_OK) {
        return status;
    }
    status = check_box(box, &published->error);
    if (status == TCK_OK && elements_of(box) > 0) {
        status = check_given(published, to);
    }
    if (status == TCK_OK) {
        status = read_box(published, box, to);
    }
    return status == TCK_OK ? TCK_OK : error_prefix(&published->error, "\"%.200s\"", box->key);
}

/* ---- blobs ------------------------------------------------------------------------------------------------------- */

static tck_status_t blob_size(struct tck_published *published, const struct entry *entry, uint64_t *out)
{
    uint64_t size = 0;
    tck_status_t status =
        chunks_read(&published->chunks, entry->file, entry->begin, sizeof(size), &size, &published->error);
    if (status != TCK_OK) {
        return status;
    }
    size = le64toh(size);
    if (size > entry->bytes - BLOB_PREFIX_BYTES) {
        return error_set(
            &published->error, TCK_ERR_CORRUPT, "%s: blob \"%.200s\" says %" PRIu64 " bytes in a capacity of %" PRIu64,
            file_of(published, entry), entry_key(&published->table, entry), size, entry->bytes - BLOB_PREFIX_BYTES);
    }
    *out = size;
    return TCK_OK;
}

static tck_status_t find_blob(struct tck_published *published, const char *key, int rank, const struct entry **out)
{
    size_t count = 0, hits = 0;
    const struct entry *entries = table_find(&published->table, key, &count);
    for (size_t i = 0; i < count; i++) {
        if (entries[i].blob && (rank < 0 || entries[i].rank == (uint32_t)rank)) {
            *out = &entries[i];
            hits++;
        }
    }
    if (hits == 0) {
        return error_set(&published->error, TCK_ERR_NOENT, "no blob \"%.200s\"%s", key,
                         count == 0 || rank < 0 ? "" : " of this rank");
    }
    if (hits > 1) {
        return error_set(&published->error, TCK_ERR_LAYOUT,
                         "%zu ranks have each saved a blob \"%.200s\": name the rank", hits, key);
    }
    return TCK_OK;
}

tck_status_t tck_published_read_blob(tck_published_t *published, const char *key, int rank, void *data, size_t cap,
                                     size_t *size_out)
{
    const struct entry *blob = NULL;
    uint64_t size = 0;
    tck_status_t status = check_open(published);
    if (status == TCK_OK) {
        status = check_given(published, key);
    }
    if (status == TCK_OK) {
        status = check_given(published, size_out);
    }
    if (status == TCK_OK && cap > 0) {
        status = check_given(published, data);
    }
    if (status == TCK_OK) {
        status = find_blob(published, key, rank, &blob);
    }
    if (status == TCK_OK) {
        status = blob_size(published, blob, &size);
    }
    if (status != TCK_OK) {
        return status;
    }
    *size_out = size;
    if (size > cap) {
        return error_set(&published->error, TCK_ERR_NOSPC, "blob \"%.200s\": %" PRIu64 " bytes do not fit into %zu",
                         key, size, cap);
    }
    return chunks_read(&published->chunks, blob->file, blob->begin + BLOB_PREFIX_BYTES, size, data, &published->error);
}
