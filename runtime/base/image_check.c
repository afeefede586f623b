/* SPDX-License-Identifier: Apache-2.0
 * Checks the header of an image that came from a file or a peer. Entries must be in the order of their bytes, as
 * image.c prints them, and the lists in the metadata in the same order, so one walk over all three checks a header
 * of any size without looking anything up by name. */
#include "base/image_check.h"
#include "base/image.h"
#include "base/json.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <string.h>

#define LENGTH_BYTES 8

/* One walk over the entries and the two lists that repeat their names. */
struct check {
    const json_t *entry, *sharding, *global;
    uint64_t at;                     /* where the next entry must begin */
    uint64_t data_start;             /* of the image */
    const struct image_visit *visit; /* may be NULL */
    struct error *err;
};

struct tensor {
    const char *key;
    tck_dtype_t dtype;
    uint32_t ndim;
    uint64_t shape[TCK_MAX_NDIM], offset[TCK_MAX_NDIM], whole[TCK_MAX_NDIM];
    uint64_t begin, end;
    bool filler, blob;
};

static tck_status_t bad(struct error *err, const char *key, const char *why)
{
    return error_set(err, TCK_ERR_CORRUPT, "entry \"%.200s\": %s", key, why);
}

/* An array of at most max numbers. */
static bool read_numbers(const json_t *array, uint64_t *out, uint32_t max, uint32_t *count_out)
{
    uint32_t count = 0;

    if (!json_is_array(array)) {
        return false;
    }
    for (const json_t *item = json_first(array); item != NULL; item = json_next(item)) {
        if (count == max || json_str(item) != NULL || !json_u64(item, &out[count])) {
            return false;
        }
        count++;
    }
    *count_out = count;
    return true;
}

static tck_status_t read_tensor(const json_t *entry, struct tensor *out, struct error *err)
{
    const char *dtype = json_str(json_get(entry, "dtype"));
    struct tensor tensor = {.key = json_key(entry)};
    uint64_t range[2];
    uint32_t range_count = 0;
    size_t key_len = strlen(tensor.key);

    if (key_len == 0 || key_len > TCK_MAX_KEY) {
        return bad(err, tensor.key, "key is empty or too long");
    }
    if (json_len(entry) != 3 || dtype == NULL || !dtype_parse(dtype, &tensor.dtype)) {
        return bad(err, tensor.key, "not an object of a known dtype, shape and data_offsets");
    }
    if (!read_numbers(json_get(entry, "shape"), tensor.shape, TCK_MAX_NDIM, &tensor.ndim)) {
        return bad(err, tensor.key, "shape is not a list of at most 8 numbers");
    }
    if (!read_numbers(json_get(entry, "data_offsets"), range, 2, &range_count) || range_count != 2) {
        return bad(err, tensor.key, "data_offsets is not a list of two numbers");
    }
    tensor.begin = range[0];
    tensor.end = range[1];
    tensor.filler = strncmp(tensor.key, IMAGE_FILLER, strlen(IMAGE_FILLER)) == 0;
    *out = tensor;
    return TCK_OK;
}

static tck_status_t check_range(const struct check *check, const struct tensor *tensor)
{
    uint64_t bytes = dtype_bytes(tensor->dtype);

    for (uint32_t d = 0; d < tensor->ndim; d++) {
        if (__builtin_mul_overflow(bytes, tensor->shape[d], &bytes)) {
            return bad(check->err, tensor->key, "its size overflows");
        }
    }
    if (tensor->begin != check->at) {
        return bad(check->err, tensor->key, "does not begin where the entry before it ends");
    }
    if (tensor->end < tensor->begin || tensor->end - tensor->begin != bytes) {
        return bad(check->err, tensor->key, "its bytes are not those of its shape and dtype");
    }
    return TCK_OK;
}

static tck_status_t check_place(const struct check *check, const struct tensor *tensor)
{
    uint64_t bytes = tensor->end - tensor->begin;
    uint64_t align = bytes >= IMAGE_LARGE_BYTES ? IMAGE_ALIGN : IMAGE_SMALL_ALIGN;

    if (tensor->filler && (tensor->dtype != TCK_U8 || tensor->ndim != 1 || bytes >= IMAGE_ALIGN)) {
        return bad(check->err, tensor->key, "is not a filler, but has the key of one");
    }
    if (!tensor->filler && tensor->begin % align != 0) {
        return bad(check->err, tensor->key, "is not aligned");
    }
    return TCK_OK;
}

/* Checks that the next name in DCP_SHARDING_INFO is this entry's. */
static tck_status_t check_sharding(struct check *check, struct tensor *tensor)
{
    uint32_t count = 0;

    if (check->sharding == NULL || strcmp(json_key(check->sharding), tensor->key) != 0) {
        return bad(check->err, tensor->key, "is not at its place in " IMAGE_SHARDING);
    }
    if (!read_numbers(json_get(check->sharding, "saved_offsets"), tensor->offset, TCK_MAX_NDIM, &count) ||
        count != tensor->ndim) {
        return bad(check->err, tensor->key, "saved_offsets does not fit its shape");
    }
    check->sharding = json_next(check->sharding);
    return TCK_OK;
}

/* An entry that the list of global shapes does not name is a filler or a blob. */
static tck_status_t check_global(struct check *check, struct tensor *tensor)
{
    uint32_t count = 0;

    if (check->global == NULL || tensor->filler || strcmp(json_key(check->global), tensor->key) != 0) {
        tensor->blob = !tensor->filler && tensor->dtype == TCK_U8 && tensor->ndim == 1 && tensor->offset[0] == 0 &&
                       tensor->shape[0] >= BLOB_PREFIX_BYTES;
        memcpy(tensor->whole, tensor->shape, sizeof(tensor->whole));
        return tensor->filler || tensor->blob ? TCK_OK : bad(check->err, tensor->key, "has no global shape");
    }
    if (!read_numbers(check->global, tensor->whole, TCK_MAX_NDIM, &count) || count != tensor->ndim) {
        return bad(check->err, tensor->key, "global shape has other dimensions");
    }
    for (uint32_t d = 0; d < count; d++) {
        if (tensor->offset[d] > tensor->whole[d] || tensor->shape[d] > tensor->whole[d] - tensor->offset[d]) {
            return bad(check->err, tensor->key, "extends beyond its global shape");
        }
    }
    check->global = json_next(check->global);
    return TCK_OK;
}

static tck_status_t visit_entry(const struct check *check, const struct tensor *tensor)
{
    struct image_entry entry = {.key = tensor->key,
                                .dtype = tensor->dtype,
                                .ndim = tensor->ndim,
                                .global_shape = tensor->whole,
                                .offset = tensor->offset,
                                .shape = tensor->shape,
                                .begin = check->data_start + tensor->begin,
                                .bytes = tensor->end - tensor->begin,
                                .blob = tensor->blob};

    if (check->visit == NULL || tensor->filler) {
        return TCK_OK;
    }
    return check->visit->visit_entry(check->visit->ctx, &entry, check->err);
}

static tck_status_t check_entry(struct check *check)
{
    struct tensor tensor;
    tck_status_t status = read_tensor(check->entry, &tensor, check->err);

    if (status == TCK_OK) {
        status = check_range(check, &tensor);
    }
    if (status == TCK_OK) {
        status = check_place(check, &tensor);
    }
    if (status == TCK_OK) {
        status = check_sharding(check, &tensor);
    }
    if (status == TCK_OK) {
        status = check_global(check, &tensor);
    }
    if (status == TCK_OK) {
        status = visit_entry(check, &tensor);
    }
    if (status == TCK_OK) {
        check->at = tensor.end;
    }
    return status;
}

static tck_status_t check_entries(struct check *check)
{
    for (; check->entry != NULL; check->entry = json_next(check->entry)) {
        tck_status_t status = check_entry(check);

        if (status != TCK_OK) {
            return status;
        }
    }
    if (check->sharding != NULL || check->global != NULL) {
        return error_set(check->err, TCK_ERR_CORRUPT, "the metadata names entries that are not there");
    }
    if (check->at % IMAGE_ALIGN != 0) {
        return error_set(check->err, TCK_ERR_CORRUPT, "%" PRIu64 " bytes of data do not end at a multiple of %d",
                         check->at, IMAGE_ALIGN);
    }
    return TCK_OK;
}

/* Parses the JSON object that is a string in the metadata. */
static tck_status_t parse_list(const json_t *metadata, const char *name, json_t **out, struct error *err)
{
    const char *text = json_str(json_get(metadata, name));
    json_t *list = NULL;
    tck_status_t status;

    if (text == NULL) {
        return error_set(err, TCK_ERR_CORRUPT, "the metadata has no text %s", name);
    }
    status = json_parse(text, strlen(text), &list, err);
    if (status != TCK_OK) {
        return error_prefix(err, "%s", name);
    }
    if (!json_is_object(list)) {
        json_free(list);
        return error_set(err, TCK_ERR_CORRUPT, "%s is not a JSON object", name);
    }
    *out = list;
    return TCK_OK;
}

static tck_status_t check_metadata(const json_t *metadata, struct error *err)
{
    if (!json_is_object(metadata)) {
        return error_set(err, TCK_ERR_CORRUPT, "the header does not begin with %s", IMAGE_METADATA);
    }
    for (const json_t *item = json_first(metadata); item != NULL; item = json_next(item)) {
        if (json_str(item) == NULL) {
            return error_set(err, TCK_ERR_CORRUPT, "%s of the metadata is not a text", json_key(item));
        }
    }
    return TCK_OK;
}

/* Sets check->at to the size of the data that the parsed header describes. */
static tck_status_t check_header(const json_t *header, struct check *check)
{
    const json_t *metadata = json_is_object(header) ? json_first(header) : NULL;
    json_t *sharding = NULL, *global = NULL;
    tck_status_t status;

    if (metadata == NULL || strcmp(json_key(metadata), IMAGE_METADATA) != 0) {
        metadata = NULL;
    }
    status = check_metadata(metadata, check->err);
    if (status == TCK_OK) {
        status = parse_list(metadata, IMAGE_SHARDING, &sharding, check->err);
    }
    if (status == TCK_OK) {
        status = parse_list(metadata, IMAGE_GLOBAL_SHAPE, &global, check->err);
    }
    if (status == TCK_OK) {
        check->entry = json_next(metadata);
        check->sharding = json_first(sharding);
        check->global = json_first(global);
        status = check_entries(check);
    }
    json_free(sharding);
    json_free(global);
    return status;
}

tck_status_t image_header_bytes(const void *image, uint64_t len, uint64_t image_bytes, uint64_t *out, struct error *err)
{
    struct reader r = reader_of(image, len < LENGTH_BYTES ? 0 : LENGTH_BYTES);
    uint64_t json_bytes = read_u64(&r);

    if (r.failed || image_bytes < LENGTH_BYTES || json_bytes > IMAGE_HEADER_MAX ||
        json_bytes > image_bytes - LENGTH_BYTES) {
        return error_set(err, TCK_ERR_CORRUPT, "header of %" PRIu64 " bytes in %" PRIu64, json_bytes, image_bytes);
    }
    if ((json_bytes + LENGTH_BYTES) % IMAGE_ALIGN != 0) {
        return error_set(err, TCK_ERR_CORRUPT, "header of %" PRIu64 " bytes: data does not begin at a multiple of %d",
                         json_bytes, IMAGE_ALIGN);
    }
    *out = LENGTH_BYTES + json_bytes;
    return TCK_OK;
}

static tck_status_t walk(const void *image, uint64_t len, struct check *check)
{
    json_t *header = NULL;
    tck_status_t status = image_header_bytes(image, len, len, &check->data_start, check->err);
    const char *text = (const char *)image + LENGTH_BYTES;
    uint64_t json_bytes = check->data_start - LENGTH_BYTES;

    if (status != TCK_OK) {
        return status;
    }
    if (text[0] != '{' || !utf8_valid(text, json_bytes)) {
        return error_set(check->err, TCK_ERR_CORRUPT, "the header does not begin with { or is not UTF-8");
    }
    status = json_parse(text, json_bytes, &header, check->err);
    if (status != TCK_OK) {
        return error_prefix(check->err, "image header");
    }
    status = check_header(header, check);
    json_free(header);
    return status;
}

tck_status_t image_check(const void *image, uint64_t len, uint64_t *data_start_out, uint64_t *bytes_out,
                         struct error *err)
{
    struct check check = {.err = err};
    tck_status_t status = walk(image, len, &check);

    if (status == TCK_OK) {
        *data_start_out = check.data_start;
        *bytes_out = check.data_start + check.at;
    }
    return status;
}

tck_status_t image_walk(const void *image, uint64_t len, const struct image_visit *visit, uint64_t *bytes_out,
                        struct error *err)
{
    struct check check = {.visit = visit, .err = err};
    tck_status_t status = walk(image, len, &check);

    if (status == TCK_OK) {
        *bytes_out = check.data_start + check.at;
    }
    return status;
}
