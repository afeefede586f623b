/* SPDX-License-Identifier: Apache-2.0
 * Mapping files: which names, rows and shapes their rules make, and that malformed ones are refused. */
#include "published/family.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct error err;
static struct family_rules *rules;
static struct renamed made[RENAMED_MAX];
static uint32_t count;

static void parse(const char *text)
{
    const char *base = NULL;
    cr_assert_eq(family_parse(text, strlen(text), &rules, &base, &err), TCK_OK, "%s", err.text);
}

static tck_status_t apply(const char *name, uint64_t rows, uint64_t columns)
{
    struct map_number numbers[] = {{(char *)(uintptr_t) "heads", 4},
                                   {(char *)(uintptr_t) "query_groups", 2},
                                   {(char *)(uintptr_t) "head_size", 3}};
    const struct export_map map = {.number_count = 3, .numbers = numbers};
    const struct box box = {.ndim = 2, .size = {rows, columns}};
    return family_apply(rules, &map, name, &box, made, &count, &err);
}

static void teardown(void)
{
    for (uint32_t i = 0; i < RENAMED_MAX; i++) {
        renamed_free(&made[i]);
    }
    family_free(rules);
}

TestSuite(family, .fini = teardown);

#define RULE(text) "{\"format\":1,\"rules\":[{" text "}]}"

Test(family, numbers_of_names_are_carried_over)
{
    parse(RULE("\"from\":\"layers.{n}.experts.{e}.w\",\"to\":\"e.{e}.of.{n}\""));
    cr_assert_eq(apply("layers.12.experts.7.w", 4, 3), TCK_OK, "%s", err.text);
    cr_assert_eq(count, 1);
    cr_assert_str_eq(made[0].name, "e.7.of.12");
    cr_assert(made[0].box.size[0] == 4 && made[0].box.size[1] == 3);
    cr_assert_eq(apply("layers.x.experts.7.w", 4, 3), TCK_ERR_NOENT);
    cr_assert_eq(apply("layers.1.experts.7.w.more", 4, 3), TCK_ERR_NOENT);
    cr_assert_eq(apply("layers..experts.7.w", 4, 3), TCK_ERR_NOENT);
}

/* Two groups, each of two query heads, a key and a value, of three rows. */
Test(family, fused_rows_are_dealt_out_by_groups)
{
    parse(RULE("\"from\":\"qkv\",\"split\":\"qkv\",\"to\":[\"q\",\"k\",\"v\"]"));
    cr_assert_eq(apply("qkv", 24, 5), TCK_OK, "%s", err.text);
    cr_assert_eq(count, 3);
    const struct rows wanted[3][2] = {{{0, 6}, {12, 6}}, {{6, 3}, {18, 3}}, {{9, 3}, {21, 3}}};
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_eq(made[i].count, 2);
        for (uint32_t k = 0; k < 2; k++) {
            cr_assert(made[i].rows[k].from == wanted[i][k].from && made[i].rows[k].count == wanted[i][k].count);
        }
    }
    cr_assert_eq(made[0].box.size[0], 12);
    cr_assert_eq(made[2].box.size[0], 6);
}

Test(family, fused_rows_may_stay_in_one_tensor_in_another_order)
{
    parse(RULE("\"from\":\"qkv\",\"split\":\"qkv\",\"transpose\":true,\"to\":\"c\""));
    cr_assert_eq(apply("qkv", 24, 5), TCK_OK, "%s", err.text);
    cr_assert(count == 1 && made[0].count == 6 && made[0].rows[2].from == 6 && made[0].rows[5].from == 21);
    cr_assert(made[0].box.size[0] == 5 && made[0].box.size[1] == 24 && made[0].transposed);
}

Test(family, rows_that_heads_do_not_make_are_refused)
{
    parse(RULE("\"from\":\"qkv\",\"split\":\"qkv\",\"to\":[\"q\",\"k\",\"v\"]"));
    cr_assert_eq(apply("qkv", 25, 5), TCK_ERR_LAYOUT);
    cr_assert_not_null(strstr(err.text, "\"qkv\": 4 heads in 2 groups, each of 3 rows, do not make its 25 rows"));
}

Test(family, numbers_of_the_mapping_count_more_than_those_of_the_model)
{
    parse(
        "{\"format\":1,\"numbers\":{\"heads\":2,\"query_groups\":1,\"vocabulary\":5},\"rules\":["
        "{\"from\":\"qkv\",\"split\":\"qkv\",\"to\":[\"q\",\"k\",\"v\"]},"
        "{\"from\":\"words\",\"to\":\"w\",\"rows\":\"vocabulary\"},{\"from\":\"other\",\"to\":\"o\",\"rows\":\"x\"}]}");
    cr_assert_eq(apply("qkv", 12, 5), TCK_OK, "%s", err.text);
    cr_assert_eq(made[0].rows[0].count, 6);
    for (uint32_t i = 0; i < RENAMED_MAX; i++) {
        renamed_free(&made[i]);
    }
    cr_assert_eq(apply("words", 8, 2), TCK_OK, "%s", err.text);
    cr_assert_eq(made[0].box.size[0], 5);
    renamed_free(&made[0]);
    cr_assert_eq(apply("words", 4, 2), TCK_ERR_LAYOUT);
    cr_assert_eq(apply("other", 8, 2), TCK_OK); /* a number that nobody gives keeps all */
    cr_assert_eq(made[0].box.size[0], 8);
}

Test(family, own_rules_come_before_those_of_the_base)
{
    struct family_rules *base = NULL;
    const char *name = NULL;
    parse("{\"format\":1,\"extends\":\"megatron-llama\",\"rules\":[{\"from\":\"a\",\"to\":\"mine\"},"
          "{\"from\":\"b\",\"drop\":true}]}");
    const char *text = "{\"format\":1,\"rules\":[{\"from\":\"a\",\"to\":\"theirs\"},{\"from\":\"c\",\"to\":\"d\"}]}";
    cr_assert_eq(family_parse(text, strlen(text), &base, &name, &err), TCK_OK);
    cr_assert_null(name);
    cr_assert_eq(family_extend(rules, base, &err), TCK_OK);
    cr_assert_eq(apply("a", 1, 1), TCK_OK);
    cr_assert_str_eq(made[0].name, "mine");
    renamed_free(&made[0]);
    cr_assert_eq(apply("b", 1, 1), TCK_OK);
    cr_assert_eq(count, 0);
    cr_assert_eq(apply("c", 1, 1), TCK_OK);
    cr_assert_str_eq(made[0].name, "d");
}

Test(family, malformed_mappings_are_refused)
{
    static const char *const texts[] = {"",
                                        "[]",
                                        "{}",
                                        "{\"format\":2,\"rules\":[]}",
                                        "{\"format\":1}",
                                        "{\"format\":1,\"rules\":{}}",
                                        "{\"format\":1,\"rules\":[],\"more\":1}",
                                        "{\"format\":1,\"rules\":[],\"extends\":1}",
                                        "{\"format\":1,\"rules\":[],\"numbers\":[1]}",
                                        "{\"format\":1,\"rules\":[],\"numbers\":{\"heads\":0}}",
                                        "{\"format\":1,\"rules\":[7]}",
                                        RULE("\"from\":\"a\""),
                                        RULE("\"to\":\"a\""),
                                        RULE("\"from\":\"\",\"to\":\"a\""),
                                        RULE("\"from\":\"a\",\"to\":\"b\",\"drop\":true"),
                                        RULE("\"from\":\"a\",\"drop\":1"),
                                        RULE("\"from\":\"a\",\"to\":\"b\",\"form\":1"),
                                        RULE("\"from\":\"a.{n}\",\"to\":\"b.{m}\""),
                                        RULE("\"from\":\"a.{n}.{n}\",\"to\":\"b.{n}\""),
                                        RULE("\"from\":\"a.{n\",\"to\":\"b\""),
                                        RULE("\"from\":\"a.{1}\",\"to\":\"b\""),
                                        RULE("\"from\":\"a\",\"to\":[]"),
                                        RULE("\"from\":\"a\",\"to\":[\"b\",\"c\"]"),
                                        RULE("\"from\":\"a\",\"to\":\"b\",\"split\":\"halves\""),
                                        RULE("\"from\":\"a\",\"to\":[\"b\",\"c\"],\"split\":\"qkv\""),
                                        RULE("\"from\":\"a\",\"to\":\"b\",\"split\":\"x\""),
                                        RULE("\"from\":\"a\",\"to\":[\"b\",\"c\",\"d\",\"e\"],\"split\":\"qkv\""),
                                        RULE("\"from\":\"a\",\"to\":\"b\",\"split\":\"qkv\",\"rows\":\"x\""),
                                        RULE("\"from\":\"a\",\"to\":\"b\",\"rows\":7")};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        struct family_rules *none = NULL;
        const char *base = NULL;
        cr_assert_eq(family_parse(texts[i], strlen(texts[i]), &none, &base, &err), TCK_ERR_PROTO, "%s", texts[i]);
    }
}
