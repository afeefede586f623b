/* SPDX-License-Identifier: Apache-2.0
 * The record table of a rank: checks records as they are added, then sorts them into shards. */
#include "base/layout.h"
#include "base/digest.h"
#include "base/image.h"
#include "base/utf8.h"

#include <endian.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define KEY_SHOWN "%.200s" /* keys may be longer than an error's text */

/* ---- adding records ------------------------------------------------------------------------------------------ */

static tck_status_t check_name(const char *what, const char *name, struct error *err)
{
    size_t len = strnlen(name, TCK_MAX_KEY + 1);

    if (len > TCK_MAX_KEY) {
        return error_set(err, TCK_ERR_INVAL, "%s \"" KEY_SHOWN "...\" is longer than %d bytes", what, name,
                         TCK_MAX_KEY);
    }
    if (!utf8_valid(name, len)) {
        return error_set(err, TCK_ERR_INVAL, "%s of %zu bytes is not valid UTF-8", what, len);
    }
    return TCK_OK;
}

static tck_status_t check_key(const char *key, struct error *err)
{
    if (key == NULL || key[0] == '\0') {
        return error_set(err, TCK_ERR_INVAL, "a record has no key");
    }
    if (strcmp(key, IMAGE_METADATA) == 0 || strncmp(key, IMAGE_FILLER, strlen(IMAGE_FILLER)) == 0) {
        return error_set(err, TCK_ERR_INVAL, "key \"" KEY_SHOWN "\" is reserved", key);
    }
    return check_name("key", key, err);
}

/* The size of the struct in programs built before records had a kind of memory. */
#define RECORD_BYTES_BEFORE_MEMORY \
    ((offsetof(tck_record_t, memory) + sizeof(void *) - 1) / sizeof(void *) * sizeof(void *))

/* And before they had a head. */
#define RECORD_BYTES_BEFORE_HEAD offsetof(tck_record_t, head)

static tck_memory_t memory_of(const tck_record_t *record)
{
    return record->struct_size < RECORD_BYTES_BEFORE_HEAD ? TCK_HOST : record->memory;
}

static size_t head_bytes_of(const tck_record_t *record)
{
    return record->struct_size < sizeof(*record) || record->head == NULL ? 0 : record->head_bytes;
}

static tck_status_t check_kind(const tck_record_t *record, struct error *err)
{
    if ((unsigned)record->dtype >= TCK_DTYPE_COUNT) {
        return error_set(err, TCK_ERR_INVAL, "unknown dtype %d", (int)record->dtype);
    }
    if (record->ndim > TCK_MAX_NDIM) {
        return error_set(err, TCK_ERR_INVAL, "%u dimensions, at most %d are allowed", record->ndim, TCK_MAX_NDIM);
    }
    if (record->when != TCK_LAZY && record->when != TCK_EAGER) {
        return error_set(err, TCK_ERR_INVAL, "when is %d, neither lazy nor eager", (int)record->when);
    }
    if ((unsigned)memory_of(record) > TCK_CUDA) {
        return error_set(err, TCK_ERR_INVAL, "unknown kind of memory %d", (int)record->memory);
    }
    if (head_bytes_of(record) > TCK_MAX_HEAD) {
        return error_set(err, TCK_ERR_INVAL, "a head of %zu bytes, at most %d are allowed", record->head_bytes,
                         TCK_MAX_HEAD);
    }
    return TCK_OK;
}

/* Checks that the piece is inside the whole tensor and that no size overflows. */
static tck_status_t check_shape(const tck_record_t *record, uint64_t *bytes_out, struct error *err)
{
    uint64_t bytes = dtype_bytes(record->dtype);

    for (uint32_t d = 0; d < record->ndim; d++) {
        uint64_t whole = record->global_shape[d], offset = record->offset[d], local = record->local_shape[d];

        if (whole > IMAGE_NUMBER_MAX || offset > whole || local > whole - offset) {
            return error_set(err, TCK_ERR_INVAL,
                             "dimension %u: offset %" PRIu64 " and length %" PRIu64 " do not fit into %" PRIu64, d,
                             offset, local, whole);
        }
        if (__builtin_mul_overflow(bytes, local, &bytes) || bytes > IMAGE_NUMBER_MAX) {
            return error_set(err, TCK_ERR_INVAL, "the piece has more than %" PRIu64 " bytes", IMAGE_NUMBER_MAX);
        }
    }
    if (bytes > 0 && record->addr == NULL) {
        return error_set(err, TCK_ERR_INVAL, "no address for %" PRIu64 " bytes", bytes);
    }
    *bytes_out = bytes;
    return TCK_OK;
}

static tck_status_t check_record(const tck_record_t *record, uint64_t *bytes_out, struct error *err)
{
    tck_status_t status;

    if (record->struct_size < RECORD_BYTES_BEFORE_MEMORY) {
        return error_set(err, TCK_ERR_INVAL, "struct_size of the record is %zu, %zu is needed", record->struct_size,
                         sizeof(*record));
    }
    status = check_key(record->key, err);
    if (status != TCK_OK) {
        return status;
    }
    status = check_kind(record, err);
    if (status == TCK_OK) {
        status = check_shape(record, bytes_out, err);
    }
    if (status == TCK_OK && record->replica_group != NULL) {
        status = check_name("replica group", record->replica_group, err);
    }
    if (status != TCK_OK) {
        error_prefix(err, "record \"" KEY_SHOWN "\"", record->key);
    }
    return status;
}

static bool make_room(struct layout *layout)
{
    uint32_t cap = layout->record_cap == 0 ? 64 : layout->record_cap * 2;
    struct record *records;

    if (layout->record_count < layout->record_cap) {
        return true;
    }
    if (cap < layout->record_cap) {
        return false;
    }
    records = reallocarray(layout->records, cap, sizeof(*records));
    if (records == NULL) {
        return false;
    }
    layout->records = records;
    layout->record_cap = cap;
    return true;
}

static uint8_t *copy_head(const struct record *record)
{
    uint8_t *head = record->head_bytes == 0 ? NULL : malloc(record->head_bytes);

    return head == NULL ? NULL : memcpy(head, record->head, record->head_bytes);
}

/* Stores the record, with copies of key, group and head. */
static tck_status_t append(struct layout *layout, const struct record *record, const char *key, const char *group,
                           uint32_t *index_out, struct error *err)
{
    struct record copy = *record;

    copy.key = strdup(key);
    copy.group = strdup(group == NULL ? "" : group);
    copy.head = copy_head(record);
    if (copy.key == NULL || copy.group == NULL || (copy.head == NULL && copy.head_bytes > 0) || !make_room(layout)) {
        free(copy.key);
        free(copy.group);
        free(copy.head);
        return error_set(err, TCK_ERR_NOMEM, "no memory for record %u", layout->record_count);
    }
    if (index_out != NULL) {
        *index_out = layout->record_count;
    }
    layout->records[layout->record_count++] = copy;
    return TCK_OK;
}

tck_status_t layout_add(struct layout *layout, const tck_record_t *record, uint32_t *index_out, struct error *err)
{
    uint64_t bytes = 0;
    tck_status_t status = check_record(record, &bytes, err);
    struct record mine;
    size_t dims_bytes;

    if (status != TCK_OK) {
        return status;
    }
    mine = (struct record){.dtype = record->dtype,
                           .ndim = record->ndim,
                           .eager = record->when == TCK_EAGER,
                           .memory = memory_of(record),
                           .device = memory_of(record) == TCK_HOST ? 0 : record->device,
                           .addr = record->addr,
                           .bytes = bytes,
                           .head_bytes = (uint32_t)head_bytes_of(record)};
    if (mine.head_bytes > 0) {
        mine.head = (uint8_t *)(uintptr_t)record->head; /* copied by append */
    }
    dims_bytes = record->ndim * sizeof(uint64_t);
    memcpy(mine.global_shape, record->global_shape, dims_bytes);
    memcpy(mine.offset, record->offset, dims_bytes);
    memcpy(mine.local_shape, record->local_shape, dims_bytes);
    return append(layout, &mine, record->key, record->replica_group, index_out, err);
}

tck_status_t layout_add_blob(struct layout *layout, const char *key, uint64_t capacity, const char *group,
                             uint32_t *index_out, struct error *err)
{
    uint64_t bytes = capacity + BLOB_PREFIX_BYTES;
    tck_status_t status = check_key(key, err);
    struct record mine;

    if (status == TCK_OK && group != NULL) {
        status = check_name("replica group", group, err);
    }
    if (status != TCK_OK) {
        return status;
    }
    if (capacity > IMAGE_NUMBER_MAX - BLOB_PREFIX_BYTES) {
        return error_set(err, TCK_ERR_INVAL, "blob \"" KEY_SHOWN "\" of %" PRIu64 " bytes", key, capacity);
    }
    mine = (struct record){.dtype = TCK_U8, .ndim = 1, .blob = true, .eager = true, .bytes = bytes};
    mine.global_shape[0] = mine.local_shape[0] = bytes;
    mine.addr = calloc(1, bytes);
    if (mine.addr == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for blob \"" KEY_SHOWN "\" of %" PRIu64 " bytes", key, bytes);
    }
    status = append(layout, &mine, key, group, index_out, err);
    if (status != TCK_OK) {
        free(mine.addr);
    }
    return status;
}

/* ---- sorting into shards ------------------------------------------------------------------------------------- */

static int compare_numbers(const uint64_t *a, const uint64_t *b, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (a[i] != b[i]) {
            return a[i] < b[i] ? -1 : 1;
        }
    }
    return 0;
}

/* Sorts by tensor, then by group, then by place in the tensor. */
static int compare_pieces(const void *a, const void *b, void *records)
{
    const struct record *x = (const struct record *)records + *(const uint32_t *)a;
    const struct record *y = (const struct record *)records + *(const uint32_t *)b;
    int order = strcmp(x->key, y->key);

    if (order == 0) {
        order = strcmp(x->group, y->group);
    }
    if (order == 0 && x->ndim == y->ndim) {
        order = compare_numbers(x->offset, y->offset, x->ndim);
        if (order == 0) {
            order = compare_numbers(x->local_shape, y->local_shape, x->ndim);
        }
    }
    return order;
}

static bool is_large(const struct record *record)
{
    return record->bytes >= IMAGE_LARGE_BYTES;
}

/* Sorts by shard (record.shard is the piece number here), then in image order. */
static int compare_places(const void *a, const void *b, void *records)
{
    const struct record *x = (const struct record *)records + *(const uint32_t *)a;
    const struct record *y = (const struct record *)records + *(const uint32_t *)b;
    int order = strcmp(x->group, y->group);

    if (order == 0 && x->shard != y->shard) {
        order = x->shard < y->shard ? -1 : 1;
    }
    if (order == 0 && is_large(x) != is_large(y)) {
        order = is_large(x) ? -1 : 1;
    }
    return order == 0 ? strcmp(x->key, y->key) : order;
}

/* Checks two records with the same key. */
static tck_status_t check_pair(const struct record *a, const struct record *b, struct error *err)
{
    if (a->blob || b->blob) {
        return error_set(err, TCK_ERR_INVAL, "key \"" KEY_SHOWN "\" of a blob is used twice", a->key);
    }
    if (a->dtype != b->dtype || a->ndim != b->ndim || compare_numbers(a->global_shape, b->global_shape, a->ndim) != 0) {
        return error_set(err, TCK_ERR_INVAL, "pieces of \"" KEY_SHOWN "\" differ in dtype or global shape", a->key);
    }
    if (strcmp(a->group, b->group) == 0 && compare_numbers(a->offset, b->offset, a->ndim) == 0 &&
        compare_numbers(a->local_shape, b->local_shape, a->ndim) == 0) {
        return error_set(err, TCK_ERR_INVAL, "record \"" KEY_SHOWN "\" was added twice", a->key);
    }
    return TCK_OK;
}

/* Sets record.shard to the number of the piece among those of its key and group. order is sorted by compare_pieces. */
static tck_status_t number_pieces(struct layout *layout, const uint32_t *order, struct error *err)
{
    for (uint32_t i = 0; i < layout->record_count; i++) {
        struct record *record = &layout->records[order[i]];
        const struct record *before = i == 0 ? NULL : &layout->records[order[i - 1]];

        record->shard = 0;
        if (before == NULL || strcmp(before->key, record->key) != 0) {
            continue;
        }
        tck_status_t status = check_pair(before, record, err);
        if (status != TCK_OK) {
            return status;
        }
        record->shard = strcmp(before->group, record->group) == 0 ? before->shard + 1 : 0;
    }
    return TCK_OK;
}

static bool same_shard(const struct record *a, const struct record *b)
{
    return a->shard == b->shard && strcmp(a->group, b->group) == 0;
}

/* How many records from the first of order on belong together. */
static uint32_t run_length(const struct layout *layout, const uint32_t *order, uint32_t count)
{
    uint32_t n = 1;

    while (n < count && same_shard(&layout->records[order[0]], &layout->records[order[n]])) {
        n++;
    }
    return n;
}

/* How many of these records make one shard, if `bytes` of them do, or else the first one alone. Half of the record at
 * the end decides whether it is in this shard or in the next one. */
static uint32_t part_length(const struct layout *layout, const uint32_t *order, uint32_t count, uint64_t bytes)
{
    uint64_t before = layout->records[order[0]].bytes;
    uint32_t n = 1;

    while (n < count && before + layout->records[order[n]].bytes / 2 <= bytes) {
        before += layout->records[order[n++]].bytes;
    }
    return n;
}

static tck_status_t add_shard(struct layout *layout, const uint32_t *order, uint32_t count, struct error *err)
{
    struct shard shard = {.record_count = count};
    struct shard *shards = reallocarray(layout->shards, layout->shard_count + 1, sizeof(*shards));

    if (shards == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for shard %u", layout->shard_count);
    }
    layout->shards = shards;
    shard.group = strdup(layout->records[order[0]].group);
    shard.records = calloc(count, sizeof(*shard.records));
    if (shard.group == NULL || shard.records == NULL) {
        free(shard.group);
        free(shard.records);
        return error_set(err, TCK_ERR_NOMEM, "no memory for a shard of %u records", count);
    }
    memcpy(shard.records, order, count * sizeof(*order));
    shards[layout->shard_count++] = shard;
    return TCK_OK;
}

/* Records of one group make several shards of about the same size if they have many bytes, so that the nodes that have
 * them share the work: each writes, and sends to others, some of them. What a rank has alone stays one shard. */
static tck_status_t add_parts(struct layout *layout, const uint32_t *order, uint32_t count, struct error *err)
{
    bool is_private = layout->records[order[0]].group[0] == '\0';
    uint64_t left = 0;
    tck_status_t status = TCK_OK;

    for (uint32_t i = 0; i < count; i++) {
        left += layout->records[order[i]].bytes;
    }
    for (uint32_t at = 0, n; at < count && status == TCK_OK; at += n) {
        uint64_t parts = is_private ? 1 : (left + SHARED_SHARD_BYTES - 1) / SHARED_SHARD_BYTES;

        n = parts <= 1 ? count - at : part_length(layout, order + at, count - at, left / parts);
        for (uint32_t i = at; i < at + n; i++) {
            left -= layout->records[order[i]].bytes;
        }
        status = add_shard(layout, order + at, n, err);
    }
    return status;
}

/* order is sorted by compare_places. */
static tck_status_t split(struct layout *layout, const uint32_t *order, struct error *err)
{
    uint32_t at = 0;

    while (at < layout->record_count) {
        uint32_t count = run_length(layout, order + at, layout->record_count - at);
        tck_status_t status = add_parts(layout, order + at, count, err);

        if (status != TCK_OK) {
            return status;
        }
        at += count;
    }
    return TCK_OK;
}

static tck_status_t sort_records(struct layout *layout, struct error *err)
{
    uint32_t count = layout->record_count;
    uint32_t *order = calloc(count + (size_t)1, sizeof(*order));
    tck_status_t status;

    if (order == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory to sort %u records", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        order[i] = i;
    }
    qsort_r(order, count, sizeof(*order), compare_pieces, layout->records);
    status = number_pieces(layout, order, err);
    if (status == TCK_OK) {
        qsort_r(order, count, sizeof(*order), compare_places, layout->records);
        status = split(layout, order, err);
    }
    free(order);
    return status;
}

/* ---- ids ----------------------------------------------------------------------------------------------------- */

static uint8_t *put_number(uint8_t *at, uint64_t value, size_t bytes)
{
    uint64_t little = htole64(value);

    memcpy(at, &little, bytes);
    return at + bytes;
}

struct hash128 shard_id(const char *group, uint32_t piece, uint32_t rank, uint32_t world_size, struct hash128 table)
{
    uint8_t text[2 + TCK_MAX_KEY + 3 * sizeof(uint32_t) + sizeof(table)];
    size_t len = strnlen(group, TCK_MAX_KEY);
    uint8_t *at = put_number(text, len, sizeof(uint16_t));

    memcpy(at, group, len);
    at = put_number(at + len, piece, sizeof(uint32_t));
    at = put_number(at, rank, sizeof(uint32_t));
    at = put_number(at, world_size, sizeof(uint32_t));
    at = put_number(at, table.hi, sizeof(uint64_t));
    at = put_number(at, table.lo, sizeof(uint64_t));
    return hash128_of(text, (size_t)(at - text));
}

/* The image header contains the whole record table. The piece number distinguishes the shards that one group is
 * split into. */
static void set_id(const struct layout *layout, struct shard *shard, uint32_t rank, uint32_t world_size)
{
    bool is_private = shard->group[0] == '\0';
    struct hash128 table = hash128_of(shard->header, shard->header_bytes);
    uint32_t piece = layout->records[shard->records[0]].shard;

    shard->id = shard_id(shard->group, piece, is_private ? rank : 0, is_private ? world_size : 0, table);
}

static int compare_shards(const void *a, const void *b)
{
    const struct shard *x = a, *y = b;

    return hash128_cmp(x->id, y->id);
}

static tck_status_t build_images(struct layout *layout, uint32_t rank, uint32_t world_size, struct error *err)
{
    for (uint32_t i = 0; i < layout->shard_count; i++) {
        tck_status_t status = image_build(layout->records, &layout->shards[i], err);

        if (status != TCK_OK) {
            return status;
        }
        set_id(layout, &layout->shards[i], rank, world_size);
    }
    return TCK_OK;
}

static void sort_shards(struct layout *layout)
{
    if (layout->shard_count > 0) {
        qsort(layout->shards, layout->shard_count, sizeof(*layout->shards), compare_shards);
    }
    for (uint32_t i = 0; i < layout->shard_count; i++) {
        for (uint32_t k = 0; k < layout->shards[i].record_count; k++) {
            layout->records[layout->shards[i].records[k]].shard = i;
        }
    }
}

static void free_shards(struct layout *layout)
{
    for (uint32_t i = 0; i < layout->shard_count; i++) {
        free(layout->shards[i].group);
        free(layout->shards[i].records);
        free(layout->shards[i].header);
    }
    free(layout->shards);
    layout->shards = NULL;
    layout->shard_count = 0;
}

tck_status_t layout_build(struct layout *layout, uint32_t rank, uint32_t world_size, struct error *err)
{
    tck_status_t status = sort_records(layout, err);

    if (status == TCK_OK) {
        status = build_images(layout, rank, world_size, err);
    }
    if (status != TCK_OK) {
        free_shards(layout);
        return status;
    }
    sort_shards(layout);
    return TCK_OK;
}

static void free_record(struct record *record)
{
    free(record->key);
    free(record->group);
    free(record->head);
    if (record->blob) {
        free(record->addr);
    }
}

void layout_remove_last(struct layout *layout)
{
    free_record(&layout->records[--layout->record_count]);
}

void layout_free(struct layout *layout)
{
    free_shards(layout);
    for (uint32_t i = 0; i < layout->record_count; i++) {
        free_record(&layout->records[i]);
    }
    free(layout->records);
    *layout = (struct layout){0};
}
