/* SPDX-License-Identifier: Apache-2.0
 * How records become shards: refused records, grouping, and what ids depend on. */
#include "base/layout.h"

#include <criterion/criterion.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char memory[1 << 12]; /* the address of every record; nothing is read from it */

static tck_record_t tensor(const char *key, const char *group, uint64_t rows)
{
    return (tck_record_t){.struct_size = sizeof(tck_record_t),
                          .key = key,
                          .dtype = TCK_F32,
                          .ndim = 1,
                          .global_shape = {rows},
                          .local_shape = {rows},
                          .addr = memory,
                          .replica_group = group};
}

static tck_record_t piece(const char *key, const char *group, uint64_t offset, uint64_t rows)
{
    tck_record_t record = tensor(key, group, rows);
    record.global_shape[0] = 100;
    record.offset[0] = offset;
    return record;
}

static void add(struct layout *layout, tck_record_t record)
{
    struct error err = {0};
    cr_assert_eq(layout_add(layout, &record, NULL, &err), TCK_OK, "%s", err.text);
}

static void build(struct layout *layout, uint32_t rank)
{
    struct error err = {0};
    cr_assert_eq(layout_build(layout, rank, 4, &err), TCK_OK, "%s", err.text);
}

static void refuses(tck_record_t record, const char *word)
{
    struct layout layout = {0};
    struct error err = {0};
    cr_assert_eq(layout_add(&layout, &record, NULL, &err), TCK_ERR_INVAL);
    cr_assert_not_null(strstr(err.text, word), "'%s' is not in: %s", word, err.text);
    cr_assert_eq(layout.record_count, 0);
    layout_free(&layout);
}

Test(layout, knows_every_dtype_by_name)
{
    for (int i = 0; i < TCK_DTYPE_COUNT; i++) {
        tck_dtype_t found = TCK_DTYPE_COUNT;
        cr_assert(dtype_parse(dtype_name((tck_dtype_t)i), &found));
        cr_assert_eq(found, i);
    }
    tck_dtype_t untouched = TCK_I16;
    cr_assert_not(dtype_parse("F6", &untouched));
    cr_assert_eq(untouched, TCK_I16);
    cr_assert_eq(dtype_bytes(TCK_BF16), 2);
}

Test(layout, refuses_a_piece_outside_its_tensor)
{
    refuses(piece("w", NULL, 60, 41), "w");
    refuses(piece("w", NULL, UINT64_MAX, 2), "do not fit");
}

Test(layout, refuses_sizes_that_overflow)
{
    tck_record_t record = tensor("w", NULL, UINT64_C(1) << 40);
    record.ndim = 2;
    record.global_shape[1] = record.local_shape[1] = UINT64_C(1) << 40;
    refuses(record, "more than");
}

Test(layout, refuses_reserved_empty_and_malformed_keys)
{
    refuses(tensor("__pad_7", NULL, 1), "reserved");
    refuses(tensor("__metadata__", NULL, 1), "reserved");
    refuses(tensor("", NULL, 1), "no key");
    refuses(tensor(NULL, NULL, 1), "no key");
    refuses(tensor("\xc0\x80", NULL, 1), "UTF-8");
    refuses(tensor("\xed\xa0\x80", NULL, 1), "UTF-8");
    refuses(tensor("w", "\xff", 1), "UTF-8");
    char longest[TCK_MAX_KEY + 2];
    memset(longest, 'k', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    refuses(tensor(longest, NULL, 1), "longer");
}

Test(layout, refuses_unknown_kinds_and_sizes)
{
    tck_record_t record = tensor("w", NULL, 1);
    record.dtype = TCK_DTYPE_COUNT;
    refuses(record, "dtype");
    record = tensor("w", NULL, 1);
    record.ndim = TCK_MAX_NDIM + 1;
    refuses(record, "dimensions");
    record = tensor("w", NULL, 1);
    record.struct_size = 8;
    refuses(record, "struct_size");
    record = tensor("w", NULL, 1);
    record.addr = NULL;
    refuses(record, "address");
    record = tensor("w", NULL, 1);
    record.head = record.addr;
    record.head_bytes = TCK_MAX_HEAD + 1;
    refuses(record, "head");
}

Test(layout, takes_records_of_programs_built_before_there_were_heads)
{
    struct layout layout = {0};
    struct error err = {0};
    tck_record_t record = tensor("w", NULL, 1);
    record.memory = TCK_CUDA;
    record.device = 1;
    record.head = "not there";
    record.head_bytes = 5;
    record.struct_size = offsetof(tck_record_t, head);
    cr_assert_eq(layout_add(&layout, &record, NULL, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(layout.records[0].memory, TCK_CUDA);
    cr_assert_null(layout.records[0].head);
    layout_free(&layout);
}

Test(layout, takes_scalars_and_empty_pieces)
{
    struct layout layout = {0};
    tck_record_t scalar = tensor("step", "dp", 0);
    scalar.ndim = 0;
    tck_record_t empty = tensor("none", "dp", 0);
    empty.addr = NULL;
    add(&layout, scalar);
    add(&layout, empty);
    build(&layout, 0);
    cr_assert_eq(layout.shard_count, 1);
    cr_assert_eq(layout.records[0].bytes, 4);
    cr_assert_eq(layout.records[1].bytes, 0);
    layout_free(&layout);
}

Test(layout, makes_one_shard_per_group)
{
    struct layout layout = {0};
    add(&layout, tensor("a", "dp0", 3));
    add(&layout, tensor("b", "dp1", 3));
    add(&layout, tensor("c", "dp0", 3));
    add(&layout, tensor("d", NULL, 3));
    build(&layout, 0);
    cr_assert_eq(layout.shard_count, 3);
    cr_assert_eq(layout.records[0].shard, layout.records[2].shard);
    cr_assert_neq(layout.records[0].shard, layout.records[1].shard);
    for (uint32_t i = 0; i < layout.record_count; i++) {
        cr_assert_str_eq(layout.shards[layout.records[i].shard].group, layout.records[i].group);
    }
    layout_free(&layout);
}

Test(layout, sorts_shards_by_id)
{
    struct layout layout = {0};
    char group[8];
    for (int i = 0; i < 20; i++) {
        snprintf(group, sizeof(group), "g%d", i);
        add(&layout, tensor("a", group, 3));
    }
    build(&layout, 0);
    cr_assert_eq(layout.shard_count, 20);
    for (uint32_t i = 1; i < layout.shard_count; i++) {
        cr_assert_lt(hash128_cmp(layout.shards[i - 1].id, layout.shards[i].id), 0);
    }
    layout_free(&layout);
}

Test(layout, puts_a_second_piece_of_a_tensor_into_another_shard)
{
    struct layout layout = {0};
    add(&layout, piece("w", "dp", 50, 10));
    add(&layout, piece("w", "dp", 0, 10));
    add(&layout, tensor("b", "dp", 1));
    build(&layout, 0);
    cr_assert_eq(layout.shard_count, 2);
    cr_assert_neq(layout.records[0].shard, layout.records[1].shard);
    cr_assert_eq(layout.records[1].shard, layout.records[2].shard, "the piece that lies first goes with the others");
    layout_free(&layout);
}

Test(layout, refuses_the_same_piece_twice)
{
    struct layout layout = {0};
    struct error err = {0};
    add(&layout, piece("w", "dp", 0, 10));
    add(&layout, piece("w", "dp", 0, 10));
    cr_assert_eq(layout_build(&layout, 0, 1, &err), TCK_ERR_INVAL);
    cr_assert_not_null(strstr(err.text, "\"w\""));
    cr_assert_eq(layout.shard_count, 0);
    layout_free(&layout);
}

Test(layout, refuses_pieces_of_one_tensor_that_disagree)
{
    struct layout layout = {0};
    struct error err = {0};
    tck_record_t other = piece("w", "dp1", 10, 10);
    other.dtype = TCK_BF16;
    add(&layout, piece("w", "dp0", 0, 10));
    add(&layout, other);
    cr_assert_eq(layout_build(&layout, 0, 1, &err), TCK_ERR_INVAL);
    cr_assert_not_null(strstr(err.text, "dtype"));
    layout_free(&layout);
}

Test(layout, refuses_a_blob_with_the_key_of_a_tensor)
{
    struct layout layout = {0};
    struct error err = {0};
    add(&layout, tensor("rng", NULL, 1));
    cr_assert_eq(layout_add_blob(&layout, "rng", 8, NULL, NULL, &err), TCK_OK);
    cr_assert_eq(layout_build(&layout, 0, 1, &err), TCK_ERR_INVAL);
    layout_free(&layout);
}

Test(layout, gives_a_blob_an_empty_buffer_with_a_length)
{
    static const uint8_t zeros[BLOB_PREFIX_BYTES + 100];
    struct layout layout = {0};
    struct error err = {0};
    uint32_t index = 7;
    cr_assert_eq(layout_add_blob(&layout, "rng", 100, NULL, &index, &err), TCK_OK);
    cr_assert_eq(index, 0);
    cr_assert_eq(layout.records[0].bytes, sizeof(zeros));
    cr_assert(layout.records[0].eager);
    cr_assert_arr_eq(layout.records[0].addr, zeros, sizeof(zeros));
    layout_free(&layout);
}

/* The only shard of a rank with one record. */
static struct shard only_shard(struct layout *layout, tck_record_t record, uint32_t rank)
{
    *layout = (struct layout){0};
    add(layout, record);
    build(layout, rank);
    cr_assert_eq(layout->shard_count, 1);
    return layout->shards[0];
}

Test(layout, gives_twins_the_same_id_and_header_on_every_rank)
{
    struct layout one, two;
    struct shard a = only_shard(&one, tensor("w", "dp", 5), 0);
    struct shard b = only_shard(&two, tensor("w", "dp", 5), 3);
    cr_assert(hash128_is(a.id, b.id));
    cr_assert_eq(a.header_bytes, b.header_bytes);
    cr_assert_arr_eq(a.header, b.header, a.header_bytes);
    layout_free(&one);
    layout_free(&two);
}

Test(layout, gives_private_shards_an_id_per_rank)
{
    struct layout one, two;
    struct shard a = only_shard(&one, tensor("w", NULL, 5), 0);
    struct shard b = only_shard(&two, tensor("w", NULL, 5), 3);
    cr_assert_not(hash128_is(a.id, b.id));
    layout_free(&one);
    layout_free(&two);
}

Test(layout, gives_another_id_to_another_table)
{
    struct layout layouts[4];
    struct hash128 ids[4];
    tck_record_t records[4] = {piece("w", "dp", 0, 10), piece("w", "dp", 10, 10), piece("w", "dq", 0, 10),
                               piece("w", "dp", 0, 10)};
    records[3].dtype = TCK_U32;
    for (int i = 0; i < 4; i++) {
        ids[i] = only_shard(&layouts[i], records[i], 0).id;
        for (int k = 0; k < i; k++) {
            cr_assert_not(hash128_is(ids[i], ids[k]), "tables %d and %d", k, i);
        }
    }
    for (int i = 0; i < 4; i++) {
        layout_free(&layouts[i]);
    }
}

Test(layout, does_not_depend_on_the_order_of_adding)
{
    struct layout one = {0}, two = {0};
    add(&one, tensor("a", "dp", 5));
    add(&one, tensor("b", "dp", 1 << 20));
    add(&two, tensor("b", "dp", 1 << 20));
    add(&two, tensor("a", "dp", 5));
    build(&one, 0);
    build(&two, 0);
    cr_assert(hash128_is(one.shards[0].id, two.shards[0].id));
    cr_assert_eq(one.records[0].image_offset, two.records[1].image_offset);
    layout_free(&one);
    layout_free(&two);
}

#define MIB_ROWS (UINT64_C(1) << 18)

static void add_many(struct layout *layout, const char *group, int count, uint64_t mib)
{
    char key[8];
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof(key), "t%02d", i);
        add(layout, tensor(key, group, mib * MIB_ROWS));
    }
}

Test(layout, of_a_large_group_has_several_shards_of_about_the_same_size)
{
    struct layout layout = {0};
    add_many(&layout, "dp", 20, 100);
    build(&layout, 0);
    cr_assert_eq(layout.shard_count, 4);
    for (uint32_t i = 0; i < layout.shard_count; i++) {
        cr_assert_eq(layout.shards[i].record_count, 5);
        cr_assert_str_eq(layout.shards[i].group, "dp");
    }
    layout_free(&layout);
}

Test(layout, of_a_large_group_is_the_same_on_all_its_ranks)
{
    struct layout one = {0}, two = {0};
    char key[8];
    add_many(&one, "dp", 11, 90);
    for (int i = 10; i >= 0; i--) {
        snprintf(key, sizeof(key), "t%02d", i);
        add(&two, tensor(key, "dp", 90 * MIB_ROWS));
    }
    add(&two, tensor("own", NULL, 5));
    build(&one, 0);
    build(&two, 3);
    cr_assert_eq(one.shard_count, 2);
    cr_assert_eq(two.shard_count, 3);
    uint32_t same = 0;
    for (uint32_t i = 0; i < two.shard_count; i++) {
        for (uint32_t k = 0; k < one.shard_count; k++) {
            same += hash128_is(two.shards[i].id, one.shards[k].id);
        }
    }
    cr_assert_eq(same, 2);
    layout_free(&one);
    layout_free(&two);
}

Test(layout, of_what_a_rank_has_alone_is_one_shard_whatever_its_size)
{
    struct layout layout = {0};
    add_many(&layout, NULL, 20, 100);
    build(&layout, 0);
    cr_assert_eq(layout.shard_count, 1);
    layout_free(&layout);
}

Test(layout, divides_no_tensor)
{
    struct layout layout = {0};
    add(&layout, tensor("a", "dp", 2048 * MIB_ROWS));
    add(&layout, tensor("b", "dp", 100 * MIB_ROWS));
    add(&layout, tensor("c", "dp", 100 * MIB_ROWS));
    build(&layout, 0);
    cr_assert_eq(layout.shard_count, 2);
    cr_assert_neq(layout.records[0].shard, layout.records[1].shard);
    cr_assert_eq(layout.records[1].shard, layout.records[2].shard);
    layout_free(&layout);
}

Test(layout, of_no_records_has_no_shards)
{
    struct layout layout = {0};
    build(&layout, 0);
    cr_assert_eq(layout.shard_count, 0);
    layout_free(&layout);
}
