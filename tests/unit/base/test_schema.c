/* SPDX-License-Identifier: Apache-2.0
 * A struct defined by a table: each kind of field has its encoding, is decoded again, and refuses bytes that no encoder
 * produces. */
#include "base/schema.h"
#include "codec.h"
#include <criterion/criterion.h>

enum colour { RED, GREEN, COLOURS };

#define ENTRY_FIELDS(F) \
    F(u8, number)       \
    F(str, text, 8)
SCHEMA_STRUCT(entry, ENTRY_FIELDS)
static bool entry_is_valid(const struct entry *m)
{
    return m->number != 13;
}
SCHEMA_PART(entry, ENTRY_FIELDS, entry_is_valid)

#define ALL_FIELDS(F)                       \
    F(constant, u16, 0xabcd)                \
    F(i32, outcome)                         \
    F(choice, enum colour, colour, COLOURS) \
    F(bytes, raw, 3)                        \
    F(few, name_count, 2, str, names, 8)    \
    F(few, step_count, 3, u16, steps)       \
    F(padded, name, 4)                      \
    F(error, why)                           \
    F(optional, entry, there)               \
    F(optional, entry, missing)             \
    F(part, entry, one)                     \
    F(list, entry, entries, count, 3)       \
    F(numbers, numbers, number_count, 2)    \
    F(view, u32, text_len, char, text)
static bool entry_is_none(const struct entry *m)
{
    return m->number == 0;
}
SCHEMA_STRUCT(all, ALL_FIELDS)
SCHEMA_DECLARE(all)
static bool all_is_valid(const struct all *m)
{
    return m->outcome <= 0;
}
SCHEMA_CODEC(all, ALL_FIELDS, all_is_valid)
CODEC_OF(all)

static struct entry entries[] = {{1, "a"}, {2, "bc"}, {3, ""}, {4, ""}};
static uint32_t numbers[] = {5, 6, 7};

static struct all sample(void)
{
    return (struct all){.outcome = -2,
                        .colour = GREEN,
                        .raw = {1, 2, 3},
                        .names = {"x", "yz"},
                        .name_count = 2,
                        .steps = {7, 8},
                        .step_count = 2,
                        .name = "n",
                        .why = {.code = TCK_ERR_INVAL, .text = "no"},
                        .there = {6, "t"},
                        .one = {9, "one"},
                        .entries = entries,
                        .count = 2,
                        .numbers = numbers,
                        .number_count = 2,
                        .text = "text",
                        .text_len = 4};
}

static tck_status_t decoded(const struct all *m)
{
    struct all out;
    struct writer w = writer_new(0);
    all_encode(m, &w);
    tck_status_t status = all_decode(w.data, w.len, &out);
    writer_free(&w);
    if (status == TCK_OK) {
        all_free(&out);
    }
    return status;
}

Test(schema, every_kind_holds_as_a_codec_must)
{
    struct all m = sample();
    codec_check(&all_codec, &m);
}

Test(schema, fields_stand_in_the_order_of_the_table)
{
    struct all m = sample();
    struct writer w = writer_new(0);
    all_encode(&m, &w);
    codec_bytes(&w, "cdabfeffffff01010203020100780200797a02070008006e0000000100000002006e6f010601007400090300"
                    "6f6e65020000000101006102020062630200000005000000060000000400000074657874");
    writer_free(&w);
}

#define PIECE_FIELDS(F) \
    F(u16, offset)      \
    F(rest, char, data, len)
SCHEMA_STRUCT(piece, PIECE_FIELDS)
SCHEMA_DECLARE(piece)
SCHEMA_CODEC(piece, PIECE_FIELDS, schema_any)

Test(schema, the_rest_is_whatever_is_left)
{
    struct piece m = {.offset = 1, .data = "abc", .len = 3}, out;
    struct writer w = writer_new(0);
    piece_encode(&m, &w);
    codec_bytes(&w, "0100616263");
    for (size_t len = 0; len <= w.len; len++) {
        cr_assert_eq(piece_decode(w.data, len, &out), len < 2 ? TCK_ERR_PROTO : TCK_OK);
        cr_assert(len < 2 || (out.len == len - 2 && memcmp(out.data, "abc", out.len) == 0));
    }
    writer_free(&w);
}

Test(schema, a_list_is_no_longer_than_its_table_says)
{
    struct all m = sample();
    m.count = 3;
    cr_assert_eq(decoded(&m), TCK_OK);
    m.count = 4;
    cr_assert_eq(decoded(&m), TCK_ERR_PROTO);
    m = sample();
    m.number_count = 3;
    cr_assert_eq(decoded(&m), TCK_ERR_PROTO);
}

Test(schema, few_are_no_more_than_their_table_says)
{
    struct all m = sample();
    struct writer w = writer_new(0);
    struct all out;
    m.step_count = 0;
    cr_assert_eq(decoded(&m), TCK_OK);
    all_encode(&m, &w);
    cr_assert_eq(w.data[18], 0);
    w.data[18] = 4; /* the limit is three */
    cr_assert_eq(all_decode(w.data, w.len, &out), TCK_ERR_PROTO);
    writer_free(&w);
}

Test(schema, what_must_hold_is_asked_of_parts_and_of_the_whole)
{
    struct all m = sample();
    m.one.number = 13;
    cr_assert_eq(decoded(&m), TCK_ERR_PROTO);
    m = sample();
    m.outcome = 1;
    cr_assert_eq(decoded(&m), TCK_ERR_PROTO);
    m = sample();
    m.colour = COLOURS;
    cr_assert_eq(decoded(&m), TCK_ERR_PROTO);
}

Test(schema, no_array_is_made_for_more_than_can_follow)
{
    struct writer w = writer_new(0);
    tck_status_t status = TCK_OK;
    write_u64(&w, 0);
    struct reader r = reader_of(w.data, w.len);
    cr_assert_null(schema_array(&r, 3, entry_LEAST_BYTES, sizeof(struct entry), &status));
    cr_assert(r.failed);
    cr_assert_eq(status, TCK_OK);
    r = reader_of(w.data, w.len);
    void *array = schema_array(&r, 2, entry_LEAST_BYTES, sizeof(struct entry), &status);
    cr_assert_not_null(array);
    free(array);
    writer_free(&w);
}
