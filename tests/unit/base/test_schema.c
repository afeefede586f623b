/* SPDX-License-Identifier: Apache-2.0
 * A struct made of a table: each kind of field has its bytes, comes back, and refuses what no encoder makes. */
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
    F(names, names, name_count, 2, 8)       \
    F(part, entry, one)                     \
    F(list, entry, entries, count, 3)       \
    F(numbers, numbers, number_count, 2)    \
    F(view, u32, rest_len, char, rest)
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
                        .one = {9, "one"},
                        .entries = entries,
                        .count = 2,
                        .numbers = numbers,
                        .number_count = 2,
                        .rest = "rest",
                        .rest_len = 4};
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
    codec_bytes(&w, "cdabfeffffff01010203020100780200797a0903006f6e650200000001010061020200626302000000050000"
                    "00060000000400000072657374");
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
