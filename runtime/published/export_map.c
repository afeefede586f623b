/* SPDX-License-Identifier: Apache-2.0
 * See export_map.h. */
#include "published/export_map.h"
#include "base/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAP_FORMAT  1
#define NUMBERS_MAX 64

struct decoder {
    struct export_map *map;
    uint32_t rank;
    struct error *err;
};

static tck_status_t malformed(const struct decoder *d, const char *what)
{
    return error_set(d->err, TCK_ERR_PROTO, "%.200s is missing or malformed", what);
}

static tck_status_t no_memory(const struct decoder *d)
{
    return error_set(d->err, TCK_ERR_NOMEM, "no memory for %" PRIu32 " tensors", d->map->count);
}

/* ---- boxes ------------------------------------------------------------------------------------------------------- */

static bool read_dims(const json_t *array, uint64_t out[TCK_MAX_NDIM], uint32_t *ndim_out)
{
    uint32_t n = 0;
    if (!json_is_array(array) || json_len(array) > TCK_MAX_NDIM) {
        return false;
    }
    for (const json_t *item = json_first(array); item != NULL; item = json_next(item)) {
        if (!json_u64(item, &out[n++])) {
            return false;
        }
    }
    *ndim_out = n;
    return true;
}

/* Like read_dims for a member that may be left out: out and ndim_out are then what they were. */
static bool read_given(const json_t *object, const char *name, uint64_t out[TCK_MAX_NDIM], uint32_t *ndim_out)
{
    const json_t *array = json_get(object, name);
    return array == NULL || read_dims(array, out, ndim_out);
}

static bool countable(const struct box *box)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < box->ndim; d++) {
        if (__builtin_mul_overflow(count, box->size[d], &count)) {
            return false;
        }
    }
    return count <= UINT64_MAX / 8; /* in bytes, too */
}

static bool is_within(const struct box *box, const struct box *whole)
{
    if (box->ndim != whole->ndim) {
        return false;
    }
    for (uint32_t d = 0; d < box->ndim; d++) {
        if (box->at[d] > whole->size[d] || box->size[d] > whole->size[d] - box->at[d]) {
            return false;
        }
    }
    return true;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static tck_status_t add_part(const struct decoder *d, struct map_tensor *tensor, const json_t *json)
{
    const char *key = json_str(json_get(json, "key"));
    struct map_part *list = reallocarray(tensor->parts, (size_t)tensor->part_count + 1, sizeof(*list));
    if (list == NULL) {
        return no_memory(d);
    }
    tensor->parts = list;
    struct map_part part = {.rank = d->rank, .held = tensor->whole};
    bool good = key != NULL && key[0] != '\0' && strlen(key) <= TCK_MAX_KEY &&
                read_given(json, "held", part.held.size, &part.held.ndim);
    part.from = part.held;
    good = good && read_given(json, "size", part.from.size, &part.from.ndim) &&
           read_given(json, "from", part.from.at, &part.from.ndim);
    part.at = part.from;
    memset(part.at.at, 0, sizeof(part.at.at));
    good = good && read_given(json, "at", part.at.at, &part.at.ndim) && countable(&part.held) &&
           is_within(&part.from, &part.held) && is_within(&part.at, &tensor->whole);
    if (!good) {
        return malformed(d, "a part");
    }
    part.key = strdup(key);
    if (part.key == NULL) {
        return no_memory(d);
    }
    list[tensor->part_count++] = part;
    return TCK_OK;
}

static tck_status_t read_tensor(const struct decoder *d, struct map_tensor *tensor, const json_t *json)
{
    const char *refused = json_str(json_get(json, "refused")), *dtype = json_str(json_get(json, "dtype"));
    const json_t *parts = json_get(json, "parts");
    if (refused != NULL) {
        tensor->refused = strdup(refused);
        return tensor->refused == NULL ? no_memory(d) : TCK_OK;
    }
    if (dtype == NULL || !dtype_parse(dtype, &tensor->dtype)) {
        return malformed(d, "its dtype");
    }
    if (!read_dims(json_get(json, "shape"), tensor->whole.size, &tensor->whole.ndim) || !countable(&tensor->whole)) {
        return malformed(d, "its shape");
    }
    if (!json_is_array(parts) || json_len(parts) == 0) {
        return malformed(d, "the list of its parts");
    }
    tck_status_t status = TCK_OK;
    for (const json_t *part = json_first(parts); part != NULL && status == TCK_OK; part = json_next(part)) {
        status = add_part(d, tensor, part);
    }
    return status;
}

static tck_status_t add_tensor(const struct decoder *d, const json_t *json)
{
    struct export_map *map = d->map;
    const char *name = json_str(json_get(json, "name"));
    if (name == NULL || name[0] == '\0' || strlen(name) > TCK_MAX_KEY) {
        return malformed(d, "the name of a tensor");
    }
    if (map->count == map->cap) {
        uint32_t cap = map->cap < 64 ? 64 : 2 * map->cap;
        struct map_tensor *list = cap < map->cap ? NULL : reallocarray(map->tensors, cap, sizeof(*list));
        if (list == NULL) {
            return no_memory(d);
        }
        map->tensors = list;
        map->cap = cap;
    }
    struct map_tensor *tensor = &map->tensors[map->count];
    *tensor = (struct map_tensor){.name = strdup(name), .rank = d->rank};
    if (tensor->name == NULL) {
        return no_memory(d);
    }
    map->count++;
    tck_status_t status = read_tensor(d, tensor, json);
    return status == TCK_OK ? TCK_OK : error_prefix(d->err, "tensor \"%.200s\"", name);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static tck_status_t add_number(const struct decoder *d, const json_t *json)
{
    struct export_map *map = d->map;
    uint64_t value = 0;
    if (!json_u64(json, &value)) {
        return malformed(d, json_key(json));
    }
    for (uint32_t i = 0; i < map->number_count; i++) {
        if (strcmp(map->numbers[i].name, json_key(json)) == 0) {
            return map->numbers[i].value == value
                       ? TCK_OK
                       : error_set(d->err, TCK_ERR_LAYOUT, "%.100s is %" PRIu64 " here and %" PRIu64 " on another rank",
                                   json_key(json), value, map->numbers[i].value);
        }
    }
    struct map_number *list = reallocarray(map->numbers, (size_t)map->number_count + 1, sizeof(*list));
    if (list != NULL) {
        map->numbers = list;
        list[map->number_count] = (struct map_number){strdup(json_key(json)), value};
    }
    if (list == NULL || list[map->number_count].name == NULL || map->number_count == NUMBERS_MAX) {
        free(list == NULL ? NULL : list[map->number_count].name);
        return no_memory(d);
    }
    map->number_count++;
    return TCK_OK;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static tck_status_t decode(const struct decoder *d, const json_t *json, uint32_t *same_out)
{
    uint64_t format = 0, same = 0;
    const json_t *tensors = json_get(json, "tensors"), *numbers = json_get(json, "numbers");
    if (!json_u64(json_get(json, "format"), &format)) {
        return malformed(d, "its format");
    }
    if (format != MAP_FORMAT) {
        return error_set(d->err, TCK_ERR_PROTO, "it has format %" PRIu64 ", and this build reads format %d", format,
                         MAP_FORMAT);
    }
    if (json_get(json, "same") != NULL) {
        if (!json_u64(json_get(json, "same"), &same) || same >= d->rank) {
            return malformed(d, "the rank that has the same");
        }
        *same_out = (uint32_t)same;
        return TCK_OK;
    }
    if (!json_is_array(tensors) || (numbers != NULL && !json_is_object(numbers))) {
        return malformed(d, "the list of tensors");
    }
    tck_status_t status = TCK_OK;
    for (const json_t *item = json_first(tensors); item != NULL && status == TCK_OK; item = json_next(item)) {
        status = add_tensor(d, item);
    }
    const json_t *number = numbers == NULL ? NULL : json_first(numbers);
    for (; number != NULL && status == TCK_OK; number = json_next(number)) {
        status = add_number(d, number);
    }
    return status;
}

tck_status_t export_map_add(struct export_map *map, const char *text, size_t len, uint32_t rank, uint32_t *same_out,
                            struct error *err)
{
    const struct decoder decoder = {map, rank, err};
    json_t *json = NULL;
    uint32_t same = NONE32;
    tck_status_t status = json_parse(text, len, &json, err);
    if (status == TCK_OK) {
        status = decode(&decoder, json, &same);
    }
    json_free(json);
    if (status != TCK_OK) {
        return error_prefix(err, "the export map of rank %" PRIu32, rank);
    }
    *same_out = same;
    return TCK_OK;
}

static int compare_tensors(const void *a, const void *b)
{
    const struct map_tensor *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order != 0 ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Appends what another rank has of the same tensor; takes over its parts. */
static tck_status_t merge(struct map_tensor *tensor, struct map_tensor *more, struct error *err)
{
    bool refused = tensor->refused != NULL || more->refused != NULL;
    if (!refused && (tensor->dtype != more->dtype || !box_is(&tensor->whole, &more->whole))) {
        return error_set(err, TCK_ERR_LAYOUT,
                         "rank %" PRIu32 " and rank %" PRIu32 " declare \"%.200s\" with different "
                         "shapes or dtypes",
                         tensor->rank, more->rank, tensor->name);
    }
    if (tensor->refused == NULL) {
        tensor->refused = more->refused;
        more->refused = NULL;
    }
    struct map_part *list =
        reallocarray(tensor->parts, (size_t)tensor->part_count + more->part_count + 1, sizeof(*list));
    if (list == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the parts of a tensor");
    }
    tensor->parts = list;
    for (uint32_t i = 0; i < more->part_count; i++) {
        list[tensor->part_count++] = more->parts[i];
    }
    more->part_count = 0;
    return TCK_OK;
}

static void free_tensor(struct map_tensor *tensor)
{
    for (uint32_t i = 0; i < tensor->part_count; i++) {
        free(tensor->parts[i].key);
    }
    free(tensor->parts);
    free(tensor->refused);
    free(tensor->name);
}

tck_status_t export_map_join(struct export_map *map, struct error *err)
{
    uint32_t kept = 0;
    tck_status_t status = TCK_OK;
    if (map->count == 0) {
        return TCK_OK;
    }
    qsort(map->tensors, map->count, sizeof(*map->tensors), compare_tensors);
    for (uint32_t i = 1; i < map->count && status == TCK_OK; i++) {
        if (strcmp(map->tensors[kept].name, map->tensors[i].name) != 0) {
            map->tensors[++kept] = map->tensors[i];
        } else {
            status = merge(&map->tensors[kept], &map->tensors[i], err);
            free_tensor(&map->tensors[i]);
        }
        if (kept != i) {
            map->tensors[i] = (struct map_tensor){0}; /* so that a failed join can be freed */
        }
    }
    if (status == TCK_OK) {
        map->count = kept + 1;
    }
    return status;
}

void export_map_free(struct export_map *map)
{
    for (uint32_t i = 0; i < map->count; i++) {
        free_tensor(&map->tensors[i]);
    }
    for (uint32_t i = 0; i < map->number_count; i++) {
        free(map->numbers[i].name);
    }
    free(map->tensors);
    free(map->numbers);
    *map = (struct export_map){0};
}
