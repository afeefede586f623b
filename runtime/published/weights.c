/* SPDX-License-Identifier: Apache-2.0
 * Chooses, names and places the tensors of an export. */
#include "published/weights.h"
#include "base/json.h"
#include "published/convert.h"

#include <endian.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES 8
#define HEADER_ALIGN 64
#define HEADER_MAX   100000000u /* what safetensors readers accept */
#define OPTIMIZER    "optimizer."

/* ---- which ------------------------------------------------------------------------------------------------------- */

/* "rank3/..." of rank 3. */
static bool is_ranks_own(const struct entry *entry, const char *key)
{
    char prefix[32];
    int len = snprintf(prefix, sizeof(prefix), "rank%" PRIu32 "/", entry->rank);
    return entry->rank != NONE32 && strncmp(key, prefix, (size_t)len) == 0;
}

static bool has_tensor(const struct table *table, const char *key, size_t len)
{
    char name[TCK_MAX_KEY + 1];
    size_t count = 0;
    memcpy(name, key, len);
    name[len] = '\0';
    const struct entry *entry = table_find(table, name, &count);
    return entry != NULL && !entry->blob;
}

/* "optimizer.<a tensor's key>.<what of it>" */
static bool is_optimizers(const struct table *table, const char *key)
{
    const char *of = key + strlen(OPTIMIZER);
    if (strncmp(key, OPTIMIZER, strlen(OPTIMIZER)) != 0) {
        return false;
    }
    for (const char *dot = strchr(of, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        if (has_tensor(table, of, (size_t)(dot - of))) {
            return true;
        }
    }
    return false;
}

static bool matches(const char *const *patterns, const char *key)
{
    for (; patterns != NULL && *patterns != NULL; patterns++) {
        if (fnmatch(*patterns, key, 0) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_wanted(const struct table *table, const struct entry *entry, const tck_export_params_t *params)
{
    const char *key = entry_key(table, entry);
    bool chosen;
    if (entry->blob) {
        return false;
    }
    if (params->include != NULL && params->include[0] != NULL) {
        chosen = matches(params->include, key);
    } else {
        chosen = !is_ranks_own(entry, key) && !is_optimizers(table, key);
    }
    return chosen && !matches(params->exclude, key);
}

static char *name_of(const char *key, const tck_export_params_t *params)
{
    const char *strip = params->strip_prefix == NULL ? "" : params->strip_prefix;
    const char *add = params->add_prefix == NULL ? "" : params->add_prefix;
    char *name = NULL;
    if (strncmp(key, strip, strlen(strip)) == 0) {
        key += strlen(strip);
    }
    return asprintf(&name, "%s%s", add, key) < 0 ? NULL : name;
}

/* ---- how large --------------------------------------------------------------------------------------------------- */

static tck_status_t measure(const struct table *table, struct weight *weight, const tck_export_params_t *params,
                            struct error *err)
{
    tck_dtype_t saved = (tck_dtype_t)weight->entry->dtype;
    bool converts = params->convert && convert_can(saved);
    weight->dtype = converts ? params->dtype : saved;
    weight->bytes = dtype_bytes(weight->dtype);
    for (uint32_t d = 0; d < weight->entry->ndim; d++) {
        if (__builtin_mul_overflow(weight->bytes, entry_global(table, weight->entry)[d], &weight->bytes)) {
            return error_set(err, TCK_ERR_UNSUPPORTED, "\"%.200s\" has too many elements", weight->name);
        }
    }
    return TCK_OK;
}

static tck_status_t add(struct weights *weights, const struct table *table, const struct entry *entry,
                        const tck_export_params_t *params, struct error *err)
{
    struct weight *list = reallocarray(weights->list, (size_t)weights->count + 1, sizeof(*list));
    struct weight weight = {.entry = entry, .name = name_of(entry_key(table, entry), params)};
    if (list != NULL) {
        weights->list = list;
    }
    if (list == NULL || weight.name == NULL) {
        free(weight.name);
        return error_set(err, TCK_ERR_NOMEM, "no memory for %" PRIu32 " tensors", weights->count);
    }
    list[weights->count++] = weight;
    if (weight.name[0] == '\0' || strcmp(weight.name, "__metadata__") == 0) {
        return error_set(err, TCK_ERR_INVAL, "\"%.200s\" would get an empty or reserved name", entry_key(table, entry));
    }
    tck_status_t status = measure(table, &list[weights->count - 1], params, err);
    if (status == TCK_OK && __builtin_add_overflow(weights->bytes, list[weights->count - 1].bytes, &weights->bytes)) {
        status = error_set(err, TCK_ERR_UNSUPPORTED, "the tensors have too many elements");
    }
    return status;
}

/* ---- where ------------------------------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct weight *)a)->name, ((const struct weight *)b)->name);
}

/* Larger elements come first, so each tensor is at a multiple of its element size, if the data begin at one. */
static int compare_places(const void *a, const void *b)
{
    const struct weight *x = a, *y = b;
    uint32_t x_bytes = dtype_bytes(x->dtype), y_bytes = dtype_bytes(y->dtype);
    if (x->file != y->file) {
        return x->file < y->file ? -1 : 1;
    }
    return x_bytes != y_bytes ? (x_bytes > y_bytes ? -1 : 1) : compare_names(a, b);
}

static tck_status_t check_names(const struct weights *weights, struct error *err)
{
    for (uint32_t i = 1; i < weights->count; i++) {
        if (strcmp(weights->list[i - 1].name, weights->list[i].name) == 0) {
            return error_set(err, TCK_ERR_INVAL, "two tensors would get the name \"%.200s\"", weights->list[i].name);
        }
    }
    return TCK_OK;
}

static void place(struct weights *weights, uint64_t shard_bytes)
{
    uint64_t at = 0;
    weights->file_count = 1;
    for (uint32_t i = 0; i < weights->count; i++) {
        struct weight *weight = &weights->list[i];
        if (shard_bytes > 0 && at > 0 && (at >= shard_bytes || weight->bytes > shard_bytes - at)) {
            weights->file_count++;
            at = 0;
        }
        weight->file = weights->file_count - 1;
        at += weight->bytes;
    }
    qsort(weights->list, weights->count, sizeof(*weights->list), compare_places);
    for (uint32_t i = 0; i < weights->count; i++) {
        struct weight *weight = &weights->list[i];
        bool first = i == 0 || weight[-1].file != weight->file;
        weight->begin = first ? 0 : weight[-1].begin + weight[-1].bytes;
    }
}

tck_status_t weights_choose(const struct tck_published *published, const tck_export_params_t *params,
                            struct weights *out, struct error *err)
{
    const struct table *table = &published->table;
    struct weights weights = {0};
    tck_status_t status = TCK_OK;
    for (size_t i = 0; i < table->count && status == TCK_OK; i++) {
        const struct entry *entry = &table->entries[i];
        bool first = i == 0 || strcmp(entry_key(table, entry - 1), entry_key(table, entry)) != 0;
        if (first && is_wanted(table, entry, params)) {
            status = add(&weights, table, entry, params, err);
        }
    }
    if (status == TCK_OK && weights.list == NULL) {
        return error_set(err, TCK_ERR_NOENT, "%.200s has no tensor to export", published->found.path);
    }
    if (status == TCK_OK) {
        qsort(weights.list, weights.count, sizeof(*weights.list), compare_names);
        status = check_names(&weights, err);
    }
    if (status != TCK_OK) {
        weights_free(&weights);
        return status;
    }
    place(&weights, params->shard_bytes);
    *out = weights;
    return TCK_OK;
}

void weights_free(struct weights *weights)
{
    for (uint32_t i = 0; i < weights->count; i++) {
        free(weights->list[i].name);
    }
    free(weights->list);
    *weights = (struct weights){0};
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

void weights_file_name(const struct weights *weights, uint32_t file, char out[WEIGHTS_FILE_NAME])
{
    if (weights->file_count == 1) {
        snprintf(out, WEIGHTS_FILE_NAME, "model.safetensors");
    } else {
        snprintf(out, WEIGHTS_FILE_NAME, "model-%05" PRIu32 "-of-%05" PRIu32 ".safetensors", file + 1,
                 weights->file_count);
    }
}

static bool add_numbers(json_t *object, const char *key, const uint64_t *numbers, uint32_t count)
{
    json_t *array = json_array();
    bool good = array != NULL;
    for (uint32_t i = 0; i < count && good; i++) {
        good = json_add_u64(array, NULL, numbers[i]);
    }
    if (!good) {
        json_free(array);
        return false;
    }
    return json_add(object, key, array);
}

static bool add_tensor(json_t *header, const struct table *table, const struct weight *weight)
{
    const uint64_t range[2] = {weight->begin, weight->begin + weight->bytes};
    json_t *tensor = json_object();
    if (tensor == NULL || !json_add_str(tensor, "dtype", dtype_name(weight->dtype)) ||
        !add_numbers(tensor, "shape", entry_global(table, weight->entry), weight->entry->ndim) ||
        !add_numbers(tensor, "data_offsets", range, 2)) {
        json_free(tensor);
        return false;
    }
    return json_add(header, weight->name, tensor);
}

static char *print_header(const struct table *table, const struct weights *weights, uint32_t file)
{
    json_t *header = json_object(), *metadata = json_object();
    char *text = NULL;
    bool good = header != NULL && metadata != NULL && json_add_str(metadata, "format", "pt");
    if (!good) {
        json_free(metadata);
    } else {
        good = json_add(header, "__metadata__", metadata);
    }
    for (uint32_t i = 0; i < weights->count && good; i++) {
        good = weights->list[i].file != file || add_tensor(header, table, &weights->list[i]);
    }
    if (good) {
        text = json_print(header, false);
    }
    json_free(header);
    return text;
}

char *weights_header(const struct table *table, const struct weights *weights, uint32_t file, size_t *len_out)
{
    char *json = print_header(table, weights, file);
    size_t json_len = json == NULL ? 0 : strnlen(json, HEADER_MAX + 1);
    size_t len = (LENGTH_BYTES + json_len + HEADER_ALIGN - 1) / HEADER_ALIGN * HEADER_ALIGN;
    char *text = json == NULL || len > HEADER_MAX ? NULL : malloc(len);
    if (text != NULL) {
        uint64_t length = htole64(len - LENGTH_BYTES);
        memset(text, ' ', len);
        memcpy(text, &length, sizeof(length));
        memcpy(text + LENGTH_BYTES, json, json_len);
        *len_out = len;
    }
    free(json);
    return text;
}

static bool add_map(json_t *index, const struct weights *weights)
{
    json_t *map = json_object();
    bool good = map != NULL;
    for (uint32_t i = 0; i < weights->count && good; i++) {
        char file[WEIGHTS_FILE_NAME];
        weights_file_name(weights, weights->list[i].file, file);
        good = json_add_str(map, weights->list[i].name, file);
    }
    if (!good) {
        json_free(map);
        return false;
    }
    return json_add(index, "weight_map", map);
}

char *weights_index(const struct weights *weights, size_t *len_out)
{
    json_t *index = json_object(), *metadata = json_object();
    char *text = NULL;
    bool good = index != NULL && metadata != NULL && json_add_u64(metadata, "total_size", weights->bytes);
    if (!good) {
        json_free(metadata);
    } else if (json_add(index, "metadata", metadata) && add_map(index, weights)) {
        text = json_print(index, true);
    }
    json_free(index);
    *len_out = text == NULL ? 0 : strlen(text);
    return text;
}
