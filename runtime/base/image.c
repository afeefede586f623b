/* SPDX-License-Identifier: Apache-2.0
 * Places the records of a shard in its image and prints the image's header. The header is printed by hand and not
 * through json.h: a JSON tree of 100000 tensors, with two parts that are JSON inside JSON strings, would take ten
 * times the target of 2 us per tensor. One function, put_escaped, does all the escaping. */
#include "base/image.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LENGTH_BYTES  8 /* the header's length, before it */
#define NUMBER_DIGITS 20

/* ---- the entries of an image, gaps included ------------------------------------------------------------------ */

struct entry {
    const struct record *record; /* NULL: a filler */
    uint32_t filler;             /* its number */
    uint64_t begin, end;         /* from where data begins */
};

/* Walks the entries of a shard in image order. */
struct walk {
    const struct record *records;
    const struct shard *shard;
    uint32_t next_record, next_filler;
    uint64_t at;
    uint64_t begin; /* of the next record, or of the end; valid if `placed` */
    bool placed;
};

static uint64_t record_align(const struct record *record)
{
    return record->bytes >= IMAGE_LARGE_BYTES ? IMAGE_ALIGN : IMAGE_SMALL_ALIGN;
}

/* A gap that is too long for one filler is cut: with a head in it, it may have IMAGE_ALIGN bytes and more. */
static uint64_t filler_end(uint64_t at, uint64_t gap_end)
{
    return gap_end - at < IMAGE_ALIGN ? gap_end : at + IMAGE_ALIGN / 2;
}

static bool walk_next(struct walk *walk, struct entry *out)
{
    const struct shard *shard = walk->shard;
    bool at_end = walk->next_record == shard->record_count;
    const struct record *record = at_end ? NULL : &walk->records[shard->records[walk->next_record]];

    if (!walk->placed) {
        walk->begin =
            at_end ? align_up(walk->at, IMAGE_ALIGN) : align_up(walk->at + record->head_bytes, record_align(record));
        walk->placed = true;
    }
    if (walk->begin > walk->at) {
        *out =
            (struct entry){.filler = walk->next_filler++, .begin = walk->at, .end = filler_end(walk->at, walk->begin)};
    } else if (!at_end) {
        *out = (struct entry){.record = record, .begin = walk->at, .end = walk->at + record->bytes};
        walk->next_record++;
        walk->placed = false;
    } else {
        return false;
    }
    walk->at = out->end;
    return true;
}

static struct walk walk_of(const struct record *records, const struct shard *shard)
{
    return (struct walk){.records = records, .shard = shard};
}

/* ---- printing ------------------------------------------------------------------------------------------------ */

static void put(struct writer *w, const char *text)
{
    write_bytes(w, text, strlen(text));
}

static void put_number(struct writer *w, uint64_t value)
{
    char digits[NUMBER_DIGITS];
    size_t at = sizeof(digits);

    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    write_bytes(w, digits + at, sizeof(digits) - at);
}

static bool is_plain(char c)
{
    return (unsigned char)c >= 0x20 && c != '"' && c != '\\';
}

/* Prints the text as it appears inside `depth` nested JSON strings. */
static void put_escaped(struct writer *w, const char *text, size_t len, unsigned depth)
{
    size_t done = 0;

    if (depth == 0) {
        write_bytes(w, text, len);
        return;
    }
    for (size_t i = 0; i <= len; i++) {
        char escape[8];
        int escape_len;

        if (i < len && is_plain(text[i])) {
            continue;
        }
        write_bytes(w, text + done, i - done);
        if (i < len) {
            escape_len = (unsigned char)text[i] < 0x20 ? snprintf(escape, sizeof(escape), "\\u%04x", text[i])
                                                       : snprintf(escape, sizeof(escape), "\\%c", text[i]);
            put_escaped(w, escape, (size_t)escape_len, depth - 1);
        }
        done = i + 1;
    }
}

/* The entry's key with its quotes, inside depth JSON strings. */
static void put_key(struct writer *w, const struct entry *entry, unsigned depth)
{
    put_escaped(w, "\"", 1, depth);
    if (entry->record != NULL) {
        put_escaped(w, entry->record->key, strlen(entry->record->key), depth + 1);
    } else {
        put(w, IMAGE_FILLER);
        put_number(w, entry->filler);
    }
    put_escaped(w, "\"", 1, depth);
}

static void put_numbers(struct writer *w, const uint64_t *values, uint32_t count)
{
    put(w, "[");
    for (uint32_t i = 0; i < count; i++) {
        put(w, i == 0 ? "" : ",");
        put_number(w, values[i]);
    }
    put(w, "]");
}

static void put_comma(struct writer *w, bool *first)
{
    put(w, *first ? "" : ",");
    *first = false;
}

/* For stock PyTorch, which requires every key of the file to be listed here. */
static void put_sharding_info(struct writer *w, struct walk walk)
{
    static const uint64_t zero[1] = {0};
    struct entry entry;
    bool first = true;

    put(w, "\"" IMAGE_SHARDING "\":\"{");
    while (walk_next(&walk, &entry)) {
        const struct record *record = entry.record;

        put_comma(w, &first);
        put_key(w, &entry, 1);
        put(w, ":{\\\"saved_offsets\\\":");
        put_numbers(w, record == NULL ? zero : record->offset, record == NULL ? 1 : record->ndim);
        put(w, "}");
    }
    put(w, "}\"");
}

/* Lists the tensors only: blobs and fillers are recognised by their absence. */
static void put_global_shapes(struct writer *w, struct walk walk)
{
    struct entry entry;
    bool first = true;

    put(w, "\"" IMAGE_GLOBAL_SHAPE "\":\"{");
    while (walk_next(&walk, &entry)) {
        if (entry.record == NULL || entry.record->blob) {
            continue;
        }
        put_comma(w, &first);
        put_key(w, &entry, 1);
        put(w, ":");
        put_numbers(w, entry.record->global_shape, entry.record->ndim);
    }
    put(w, "}\"");
}

static void put_entry(struct writer *w, const struct entry *entry)
{
    const uint64_t range[2] = {entry->begin, entry->end}, size[1] = {entry->end - entry->begin};
    const struct record *record = entry->record;

    put(w, ",");
    put_key(w, entry, 0);
    put(w, ":{\"dtype\":\"");
    put(w, dtype_name(record == NULL ? TCK_U8 : record->dtype));
    put(w, "\",\"shape\":");
    put_numbers(w, record == NULL ? size : record->local_shape, record == NULL ? 1 : record->ndim);
    put(w, ",\"data_offsets\":");
    put_numbers(w, range, 2);
    put(w, "}");
}

static void put_padding(struct writer *w)
{
    static const char spaces[] = "                                                                ";
    size_t left = align_up(w->len, IMAGE_ALIGN) - w->len;

    while (left > 0 && !w->failed) {
        size_t part = left < sizeof(spaces) - 1 ? left : sizeof(spaces) - 1;

        write_bytes(w, spaces, part);
        left -= part;
    }
}

static void put_header(struct writer *w, struct walk walk)
{
    struct walk entries = walk;
    struct entry entry;

    write_u64(w, 0); /* the length, known at the end */
    put(w, "{\"" IMAGE_METADATA "\":{");
    put_sharding_info(w, walk);
    put(w, ",\"format\":\"pt\",");
    put_global_shapes(w, walk);
    put(w, "}");
    while (walk_next(&entries, &entry)) {
        put_entry(w, &entry);
    }
    put(w, "}");
    put_padding(w);
}

static tck_status_t print_header(const struct record *records, struct shard *shard, struct error *err)
{
    struct writer w = writer_new(LENGTH_BYTES + IMAGE_HEADER_MAX);
    size_t len = 0;
    uint64_t json_bytes;

    put_header(&w, walk_of(records, shard));
    shard->header = writer_take(&w, &len);
    if (shard->header == NULL) {
        return error_set(err, TCK_ERR_NOSPC,
                         "the safetensors header of %u records takes more than %u bytes, or there is no memory for it",
                         shard->record_count, IMAGE_HEADER_MAX);
    }
    json_bytes = htole64(len - LENGTH_BYTES);
    memcpy(shard->header, &json_bytes, LENGTH_BYTES);
    shard->header_bytes = len;
    return TCK_OK;
}

/* ---- placing ------------------------------------------------------------------------------------------------- */

/* Each size was checked when its record was added; this checks their sum. */
static tck_status_t check_size(const struct record *records, const struct shard *shard, struct error *err)
{
    struct walk walk = walk_of(records, shard);
    struct entry entry;

    while (walk_next(&walk, &entry)) {
        if (walk.at > IMAGE_NUMBER_MAX - IMAGE_HEADER_MAX - IMAGE_ALIGN) {
            return error_set(err, TCK_ERR_INVAL,
                             "the records of group \"%.200s\" make a shard of more than %" PRIu64 " bytes",
                             shard->group, IMAGE_NUMBER_MAX);
        }
    }
    return TCK_OK;
}

static void place_records(struct record *records, struct shard *shard)
{
    struct walk walk = walk_of(records, shard);
    struct entry entry;

    while (walk_next(&walk, &entry)) {
        if (entry.record != NULL) {
            records[shard->records[walk.next_record - 1]].image_offset = shard->header_bytes + entry.begin;
        }
    }
    shard->image_bytes = shard->header_bytes + walk.at;
}

tck_status_t image_build(struct record *records, struct shard *shard, struct error *err)
{
    tck_status_t status = check_size(records, shard, err);

    if (status == TCK_OK) {
        status = print_header(records, shard, err);
    }
    if (status == TCK_OK) {
        place_records(records, shard);
    }
    return status;
}
