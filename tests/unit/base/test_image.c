/* SPDX-License-Identifier: Apache-2.0
 * Images: the positions of records, that the generated header passes the readers' check, and what that check refuses.
 */
#include "base/image_check.h"
#include "base/layout.h"

#include <criterion/criterion.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char memory[1 << 12]; /* the address of every record; nothing is read from it */

static void add(struct layout *layout, const char *key, tck_dtype_t dtype, uint64_t elements)
{
    tck_record_t record = {.struct_size = sizeof(record),
                           .key = key,
                           .dtype = dtype,
                           .ndim = 1,
                           .global_shape = {elements + 7},
                           .offset = {7},
                           .local_shape = {elements},
                           .addr = memory,
                           .replica_group = "dp"};
    struct error err = {0};
    cr_assert_eq(layout_add(layout, &record, NULL, &err), TCK_OK, "%s", err.text);
}

static const struct shard *build(struct layout *layout)
{
    struct error err = {0};
    cr_assert_eq(layout_build(layout, 0, 1, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(layout->shard_count, 1);
    return &layout->shards[0];
}

static void passes(const struct shard *shard)
{
    struct error err = {0};
    uint64_t data_start = 0, bytes = 0;
    cr_assert_eq(image_check(shard->header, shard->header_bytes, &data_start, &bytes, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(data_start, shard->header_bytes);
    cr_assert_eq(bytes, shard->image_bytes);
}

Test(image, aligns_small_records_to_64_and_large_ones_to_4096)
{
    struct layout layout = {0};
    add(&layout, "a", TCK_U8, 3);
    add(&layout, "b", TCK_F64, 9);
    add(&layout, "large1", TCK_U8, (1 << 20) + 1);
    add(&layout, "large2", TCK_U8, 1 << 20);
    const struct shard *shard = build(&layout);
    const struct record *r = layout.records;
    cr_assert_eq(shard->header_bytes % IMAGE_ALIGN, 0);
    cr_assert_eq(shard->image_bytes % IMAGE_ALIGN, 0);
    cr_assert_eq(r[2].image_offset, shard->header_bytes);
    cr_assert_eq(r[3].image_offset, shard->header_bytes + (1 << 20) + 4096);
    cr_assert_eq(r[0].image_offset, r[3].image_offset + (1 << 20));
    cr_assert_eq(r[1].image_offset, r[0].image_offset + 64);
    passes(shard);
    layout_free(&layout);
}

static void add_with_head(struct layout *layout, const char *key, uint64_t elements, size_t head_bytes)
{
    static const char head[TCK_MAX_HEAD] = "head";
    tck_record_t record = {.struct_size = sizeof(record),
                           .key = key,
                           .dtype = TCK_U8,
                           .ndim = 1,
                           .global_shape = {elements},
                           .local_shape = {elements},
                           .addr = memory,
                           .replica_group = "dp",
                           .head = head,
                           .head_bytes = head_bytes};
    struct error err = {0};
    cr_assert_eq(layout_add(layout, &record, NULL, &err), TCK_OK, "%s", err.text);
}

Test(image, has_room_for_a_head_before_a_record_and_its_header_passes)
{
    struct layout layout = {0};
    add_with_head(&layout, "a", 3, 64);
    add_with_head(&layout, "b", 0, 65);
    add_with_head(&layout, "c", 5, TCK_MAX_HEAD);
    add_with_head(&layout, "large1", (1 << 20) + 4095, 1);
    add_with_head(&layout, "large2", 1 << 20, 4095);
    add_with_head(&layout, "large3", 1 << 20, TCK_MAX_HEAD);
    const struct shard *shard = build(&layout);
    const struct record *r = layout.records;
    uint64_t data = shard->header_bytes;
    cr_assert_eq(r[3].image_offset, data + 4096);
    cr_assert_eq(r[4].image_offset, r[3].image_offset + (1 << 20) + 2 * 4096, "the rest of a page is one byte short");
    cr_assert_eq(r[5].image_offset, r[4].image_offset + (1 << 20) + 4096);
    cr_assert_eq(r[0].image_offset, r[5].image_offset + (1 << 20) + 64);
    cr_assert_eq(r[1].image_offset, r[0].image_offset + 128);
    cr_assert_eq(r[2].image_offset, r[1].image_offset + 4096);
    passes(shard);
    layout_free(&layout);
}

Test(image, of_records_with_heads_has_the_same_entries_but_for_fillers)
{
    struct layout with = {0}, without = {0};
    add_with_head(&with, "w", 64, 64);
    add_with_head(&without, "w", 64, 0);
    const struct shard *a = build(&with), *b = build(&without);
    cr_assert_not(hash128_is(a->id, b->id), "another place of its records is another layout");
    cr_assert_eq(a->records[0], b->records[0]);
    cr_assert_arr_eq(with.records[0].head, "head", 4);
    cr_assert_null(without.records[0].head);
    layout_free(&with);
    layout_free(&without);
}

Test(image, passes_its_own_check_with_every_kind_of_entry)
{
    struct layout layout = {0};
    struct error err = {0};
    tck_record_t scalar = {.struct_size = sizeof(scalar), .key = "scalar", .addr = memory, .replica_group = "dp"};
    for (int i = 0; i < TCK_DTYPE_COUNT; i++) {
        add(&layout, dtype_name((tck_dtype_t)i), (tck_dtype_t)i, (uint64_t)i * 5);
    }
    cr_assert_eq(layout_add(&layout, &scalar, NULL, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(layout_add_blob(&layout, "blob", 0, "dp", NULL, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(layout_add_blob(&layout, "blob2", 5000, "dp", NULL, &err), TCK_OK, "%s", err.text);
    passes(build(&layout));
    layout_free(&layout);
}

Test(image, escapes_keys_in_the_header_and_in_the_strings_inside_it)
{
    static const char *const keys[] = {"a\"b", "back\\slash", "line\nbreak\x01",
                                       "\\\"", "grün ☃ 𝄞",    "model.layers.0.w"};
    struct layout layout = {0};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        add(&layout, keys[i], TCK_F32, 10 + i);
    }
    passes(build(&layout));
    layout_free(&layout);
}

Test(image, of_many_records_passes)
{
    struct layout layout = {0};
    char key[32];
    for (int i = 0; i < 5000; i++) {
        snprintf(key, sizeof(key), "tensor.%d", i * 7919 % 5000);
        add(&layout, key, TCK_BF16, (uint64_t)i);
    }
    passes(build(&layout));
    layout_free(&layout);
}

Test(image, check_refuses_every_truncation_of_the_length_and_the_header)
{
    struct layout layout = {0};
    add(&layout, "w", TCK_F32, 100);
    const struct shard *shard = build(&layout);
    uint64_t data_start, bytes;
    for (uint64_t len = 0; len < shard->header_bytes; len++) {
        cr_assert_neq(image_check(shard->header, len, &data_start, &bytes, NULL), TCK_OK, "of %lu bytes", len);
    }
    layout_free(&layout);
}

/* An image header of this JSON text. */
static uint8_t *header_of(const char *json, uint64_t *len_out)
{
    uint64_t total = (8 + strlen(json) + 4095) / 4096 * 4096, prefix = htole64(total - 8);
    uint8_t *image = malloc(total);
    memset(image, ' ', total);
    memcpy(image, &prefix, 8);
    memcpy(image + 8, json, strlen(json));
    *len_out = total;
    return image;
}

static tck_status_t check(const char *json, struct error *err)
{
    uint64_t len, data_start, bytes;
    uint8_t *image = header_of(json, &len);
    tck_status_t status = image_check(image, len, &data_start, &bytes, err);
    free(image);
    return status;
}

#define META(sharding, shapes)                                                                                       \
    "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{" sharding "}\",\"format\":\"pt\",\"tck_global_shapes\":\"{" shapes \
    "}\"}"
#define OFFSETS(key) "\\\"" key "\\\":{\\\"saved_offsets\\\":[0]}"
#define SHAPE(key)   "\\\"" key "\\\":[4096]"
#define ENTRY(key, dtype, shape, begin, end) \
    ",\"" key "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" begin "," end "]}"

static void refuses(const char *json, const char *word)
{
    struct error err = {0};
    cr_assert_neq(check(json, &err), TCK_OK, "%s", json);
    cr_assert_not_null(strstr(err.text, word), "'%s' is not in: %s", word, err.text);
}

Test(image, check_takes_a_header_made_by_hand)
{
    struct error err = {0};
    cr_assert_eq(check(META(OFFSETS("w"), SHAPE("w")) ENTRY("w", "U8", "4096", "0", "4096") "}", &err), TCK_OK, "%s",
                 err.text);
}

Test(image, check_refuses_holes_overlaps_and_sizes_that_lie)
{
    refuses(META(OFFSETS("w"), SHAPE("w")) ENTRY("w", "U8", "4096", "64", "4160") "}", "begin");
    refuses(META(OFFSETS("w"), SHAPE("w")) ENTRY("w", "U8", "4096", "0", "4095") "}", "bytes");
    refuses(META(OFFSETS("w"), SHAPE("w")) ENTRY("w", "U8", "4096", "0", "-1") "}", "numbers");
    refuses(META(OFFSETS("w"), SHAPE("w")) ENTRY("w", "F64", "9007199254740992,4096", "0", "0") "}", "overflows");
    refuses(META(OFFSETS("w"), SHAPE("w")) ENTRY("w", "U8", "64", "0", "64") "}", "multiple");
    refuses(META(OFFSETS("v") "," OFFSETS("w"), SHAPE("v") "," SHAPE("w")) ENTRY("v", "U8", "4096", "0", "4096")
                ENTRY("w", "U8", "4096", "64", "4160") "}",
            "begin");
}

Test(image, check_refuses_unknown_dtypes_and_too_many_dimensions)
{
    refuses(META(OFFSETS("w"), SHAPE("w")) ENTRY("w", "F6", "4096", "0", "4096") "}", "dtype");
    refuses(META(OFFSETS("w"), SHAPE("w")) ENTRY("w", "U8", "4096,1,1,1,1,1,1,1,1", "0", "4096") "}", "shape");
    refuses(META(OFFSETS("w"), SHAPE("w")) ENTRY("w", "U8", "\"4096\"", "0", "4096") "}", "shape");
}

Test(image, check_refuses_keys_missing_from_the_sharding_info)
{
    refuses(META("", SHAPE("w")) ENTRY("w", "U8", "4096", "0", "4096") "}", "DCP_SHARDING_INFO");
    refuses(META(OFFSETS("w") "," OFFSETS("x"), SHAPE("w")) ENTRY("w", "U8", "4096", "0", "4096") "}", "not there");
}

Test(image, check_refuses_a_tensor_without_or_outside_its_global_shape)
{
    refuses(META(OFFSETS("w"), "") ENTRY("w", "F32", "1024", "0", "4096") "}", "global");
    refuses(META(OFFSETS("w"), "\\\"w\\\":[4095]") ENTRY("w", "U8", "4096", "0", "4096") "}", "global");
}

Test(image, check_refuses_a_key_that_stands_twice)
{
    refuses(META(OFFSETS("w") "," OFFSETS("v"), SHAPE("w")) ENTRY("w", "U8", "4096", "0", "4096")
                ENTRY("w", "U8", "4096", "4096", "8192") "}",
            "twice");
}

Test(image, check_refuses_a_filler_that_is_none)
{
    refuses(META(OFFSETS("__pad_0"), "") ENTRY("__pad_0", "F32", "1024", "0", "4096") "}", "filler");
}

Test(image, check_refuses_metadata_that_is_missing_or_not_of_texts)
{
    refuses("{}", "__metadata__");
    refuses("[]", "does not begin");
    refuses("{\"__metadata__\":{\"format\":1}}", "not a text");
    refuses("{\"__metadata__\":{\"format\":\"pt\"}}", "DCP_SHARDING_INFO");
    refuses("{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"[]\"}}", "object");
}

Test(image, check_refuses_headers_that_are_no_utf8_or_no_json)
{
    refuses(META(OFFSETS("\xff"), SHAPE("w")) ENTRY("w", "U8", "4096", "0", "4096") "}", "UTF-8");
    refuses("{\"a\":", "JSON");
    refuses(" {}", "{");
}
