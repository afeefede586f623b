/* SPDX-License-Identifier: Apache-2.0
 * Chooses, names and places the tensors of an export. */
#include "published/weights.h"
#include "base/json.h"
#include "published/convert.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES 8
#define HEADER_ALIGN 64
#define HEADER_MAX   100000000u /* what safetensors readers accept */

/* ---- which ------------------------------------------------------------------------------------------------------- */

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

static tck_status_t rename_whole(const struct whole *whole, const struct family_rules *rules,
                                 const struct export_map *map, struct renamed out[RENAMED_MAX], uint32_t *count_out,
                                 struct error *err)
{
    if (rules != NULL) {
        return family_apply(rules, map, whole->name, &whole->box, out, count_out, err);
    }
    out[0] = (struct renamed){.name = strdup(whole->name), .box = whole->box, .count = whole->box.ndim > 0};
    out[0].rows = malloc(sizeof(*out[0].rows));
    if (out[0].name == NULL || out[0].rows == NULL) {
        renamed_free(&out[0]);
        return error_set(err, TCK_ERR_NOMEM, "no memory for a name");
    }
    out[0].rows[0] = (struct rows){0, whole->box.size[0]};
    *count_out = 1;
    return TCK_OK;
}

/* ---- how large --------------------------------------------------------------------------------------------------- */

static tck_status_t measure(struct weight *weight, const tck_export_params_t *params, struct error *err)
{
    tck_dtype_t own = weight->whole->dtype;
    weight->dtype = params->convert && convert_can(own) ? params->dtype : own;
    weight->bytes = dtype_bytes(weight->dtype);
    for (uint32_t d = 0; d < weight->as.box.ndim; d++) {
        if (__builtin_mul_overflow(weight->bytes, weight->as.box.size[d], &weight->bytes)) {
            return error_set(err, TCK_ERR_UNSUPPORTED, "\"%.200s\" has too many elements", weight->as.name);
        }
    }
    return TCK_OK;
}

/* Takes over what `as` owns. */
static tck_status_t add(struct weights *weights, const struct whole *whole, struct renamed *as,
                        const tck_export_params_t *params, struct error *err)
{
    struct weight *list = reallocarray(weights->list, (size_t)weights->count + 1, sizeof(*list));
    char *name = name_of(as->name, params);
    if (list == NULL || name == NULL) {
        weights->list = list != NULL ? list : weights->list;
        free(name);
        renamed_free(as);
        return error_set(err, TCK_ERR_NOMEM, "no memory for %" PRIu32 " tensors", weights->count);
    }
    struct weight *weight = &list[weights->count++];
    weights->list = list;
    *weight = (struct weight){.whole = whole, .as = *as};
    free(as->name);
    weight->as.name = name;
    if (name[0] == '\0' || strcmp(name, "__metadata__") == 0) {
        return error_set(err, TCK_ERR_INVAL, "\"%.200s\" would get an empty or reserved name", whole->name);
    }
    tck_status_t status = measure(weight, params, err);
    if (status == TCK_OK && __builtin_add_overflow(weights->bytes, weight->bytes, &weights->bytes)) {
        status = error_set(err, TCK_ERR_UNSUPPORTED, "the tensors have too many elements");
    }
    return status;
}

static tck_status_t add_all(struct weights *weights, const struct whole *whole, const tck_export_params_t *params,
                            const struct family_rules *rules, struct error *err)
{
    struct renamed made[RENAMED_MAX];
    uint32_t count = 0, i = 0;
    tck_status_t status = rename_whole(whole, rules, &weights->wholes.map, made, &count, err);
    for (; i < count && status == TCK_OK; i++) {
        status = add(weights, whole, &made[i], params, err);
    }
    for (; i < count; i++) {
        renamed_free(&made[i]);
    }
    return status;
}

/* ---- where ------------------------------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct weight *)a)->as.name, ((const struct weight *)b)->as.name);
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
        if (strcmp(weights->list[i - 1].as.name, weights->list[i].as.name) == 0) {
            return error_set(err, TCK_ERR_INVAL, "two tensors would get the name \"%.200s\"", weights->list[i].as.name);
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

tck_status_t weights_choose(struct tck_published *published, const tck_export_params_t *params,
                            const struct family_rules *rules, struct weights *out, struct error *err)
{
    struct weights weights = {0};
    tck_status_t status = wholes_find(published, params, &weights.wholes, err);
    for (uint32_t i = 0; i < weights.wholes.count && status == TCK_OK; i++) {
        status = add_all(&weights, &weights.wholes.list[i], params, rules, err);
    }
    if (status == TCK_OK && weights.list == NULL) {
        status = error_set(err, TCK_ERR_NOENT, "%.200s has no tensor to export", published->found.path);
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
        renamed_free(&weights->list[i].as);
    }
    free(weights->list);
    wholes_free(&weights->wholes);
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

static bool add_tensor(json_t *header, const struct weight *weight)
{
    const uint64_t range[2] = {weight->begin, weight->begin + weight->bytes};
    json_t *tensor = json_object();
    if (tensor == NULL || !json_add_str(tensor, "dtype", dtype_name(weight->dtype)) ||
        !add_numbers(tensor, "shape", weight->as.box.size, weight->as.box.ndim) ||
        !add_numbers(tensor, "data_offsets", range, 2)) {
        json_free(tensor);
        return false;
    }
    return json_add(header, weight->as.name, tensor);
}

static char *print_header(const struct weights *weights, uint32_t file)
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
        good = weights->list[i].file != file || add_tensor(header, &weights->list[i]);
    }
    if (good) {
        text = json_print(header, false);
    }
    json_free(header);
    return text;
}

char *weights_header(const struct weights *weights, uint32_t file, size_t *len_out)
{
    char *json = print_header(weights, file);
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
        good = json_add_str(map, weights->list[i].as.name, file);
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
