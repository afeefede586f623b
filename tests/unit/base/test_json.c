/* SPDX-License-Identifier: Apache-2.0
 * JSON: invalid texts that cJSON would accept are refused, and integers keep their value. */
#include "base/json.h"
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses from memory of exactly len bytes, so that AddressSanitizer sees a read past them. */
static tck_status_t parse_bytes(const char *text, size_t len, json_t **out, struct error *err)
{
    char *exact = malloc(len == 0 ? 1 : len);
    cr_assert_not_null(exact);
    memcpy(exact, text, len);
    tck_status_t status = json_parse(exact, len, out, err);
    free(exact);
    return status;
}

static void expect_refused(const char *text, const char *reason)
{
    struct error err = {0};
    json_t *json = NULL;
    cr_assert_eq(parse_bytes(text, strlen(text), &json, &err), TCK_ERR_PROTO, "accepted: %s", text);
    cr_assert_null(json);
    cr_assert_not_null(strstr(err.text, reason), "error of %s: %s", text, err.text);
}

static json_t *parsed(const char *text)
{
    struct error err = {0};
    json_t *json = NULL;
    cr_assert_eq(parse_bytes(text, strlen(text), &json, &err), TCK_OK, "%s: %s", text, err.text);
    return json;
}

Test(json, refuses_duplicate_keys_at_any_depth)
{
    expect_refused("{\"a\":1,\"b\":2,\"a\":3}", "\"a\"");
    expect_refused("{\"a\":[{},{\"x\":{\"k\":1,\"j\":0,\"k\":1}}]}", "\"k\"");
    expect_refused("{\"a\":{\"z\":0},\"b\":0,\"b\":0}", "\"b\"");
}

Test(json, accepts_one_key_in_several_objects)
{
    json_t *json = parsed("{\"a\":{\"a\":1,\"A\":2},\"b\":[{\"a\":1},{\"a\":1}]}");
    cr_assert_eq(json_len(json), 2);
    json_free(json);
}

Test(json, refuses_trailing_bytes_but_not_trailing_space)
{
    expect_refused("{}x", "line 1, column 3");
    expect_refused("{}{}", "column 3");
    json_free(parsed("{} \n\t\r\n"));
}

Test(json, names_line_and_column_of_a_fault)
{
    expect_refused("{\n  \"a\": 1,\n  \"b\": }\n", "line 3, column 8");
}

Test(json, explains_common_mistakes)
{
    expect_refused("{\"a\":1,}", "line 1, column 8: there is a comma before the closing bracket");
    expect_refused("{\"a\":1,\n\"b\":[2,]\n}", "line 2, column 8: there is a comma before the closing bracket");
    expect_refused("{'a':1}", "line 1, column 2: strings need double quotes");
    expect_refused("{a:1}", "line 1, column 2: keys need double quotes");
    expect_refused("{\"a\":1 \"b\":2}", "column 8: a comma or a colon is missing before it");
    expect_refused("{\"a\":True}", "column 6: JSON has true, false and null");
    expect_refused("{\"a\":1} // it", "column 9: JSON has no comments");
    expect_refused("{\"a\":1, # it\n\"b\":2}", "column 9: JSON has no comments");
    expect_refused("{\"a\":\"b}", "column 6: the string that begins there is not closed");
    expect_refused("{\"a\":1", "column 7: the text ends before it is complete");
    expect_refused("", "is empty");
}

Test(json, refuses_unfinished_texts_without_reading_past_them)
{
    static const char whole[] = "{\"key\":[1,true,null,\"text\\u00e9\",{\"1\":1.5e3}],\"2\":-1}";
    for (size_t len = 0; len < strlen(whole); len++) {
        json_t *json = NULL;
        struct error err = {0};
        cr_assert_eq(parse_bytes(whole, len, &json, &err), TCK_ERR_PROTO, "accepted %zu bytes", len);
    }
    expect_refused("{\"1\":1,", "not valid JSON");
}

Test(json, refuses_nul_bytes)
{
    json_t *json = NULL;
    struct error err = {0};
    cr_assert_eq(parse_bytes("{\"a\0b\":1}", 9, &json, &err), TCK_ERR_PROTO);
    cr_assert_eq(parse_bytes("{}\0", 3, &json, &err), TCK_ERR_PROTO);
}

Test(json, refuses_deep_nesting_and_walks_the_deepest_allowed)
{
    char text[4002];
    memset(text, '[', 2000);
    memset(text + 2000, ']', 2000);
    text[4000] = '\0';
    expect_refused(text, "not valid JSON");
    memset(text, '[', 1000);
    memset(text + 1000, ']', 1000);
    text[2000] = '\0';
    json_free(parsed(text));
}

static void expect_u64(uint64_t value, const char *printed)
{
    json_t *json = json_object();
    cr_assert(json_add_u64(json, "v", value));
    uint64_t back = 0;
    cr_assert(json_u64(json_get(json, "v"), &back));
    cr_assert_eq(back, value);
    char *text = json_print(json, false);
    cr_assert_str_eq(text, printed);
    json_free(json);
    json = parsed(text);
    back = 0;
    cr_assert(json_u64(json_get(json, "v"), &back));
    cr_assert_eq(back, value, "%s came back as %" PRIu64, text, back);
    free(text);
    json_free(json);
}

Test(json, keeps_integers_exact)
{
    expect_u64(0, "{\"v\":0}");
    expect_u64(4294967296, "{\"v\":4294967296}");
    expect_u64(1000000000000001, "{\"v\":1000000000000001}");
    expect_u64(9007199254740991, "{\"v\":9007199254740991}");
    expect_u64(9007199254740992, "{\"v\":9007199254740992}");
    expect_u64(9007199254740993, "{\"v\":\"9007199254740993\"}");
    expect_u64(UINT64_MAX, "{\"v\":\"18446744073709551615\"}");
}

Test(json, reads_only_whole_exact_numbers_as_integers)
{
    static const char *const refused[] = {"-1",     "1.5",    "9007199254740994",         "1e300", "1e999", "\"\"",
                                          "\"-1\"", "\"1x\"", "\"18446744073709551616\"", "true",  "null",  "[1]",
                                          "\" 1\""};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        json_t *json = parsed(refused[i]);
        uint64_t value = 7;
        cr_assert_not(json_u64(json, &value), "read %s", refused[i]);
        cr_assert_eq(value, 7);
        json_free(json);
    }
}

Test(json, lookups_of_the_wrong_type_find_nothing)
{
    json_t *json = parsed("{\"s\":\"text\",\"n\":1.5,\"b\":true,\"a\":[1]}");
    double f64 = 0;
    bool flag = false;
    cr_assert_null(json_str(json_get(json, "n")));
    cr_assert_null(json_str(json_get(json, "missing")));
    cr_assert_not(json_f64(json_get(json, "s"), &f64));
    cr_assert_not(json_bool(json_get(json, "n"), &flag));
    cr_assert_null(json_get(json_get(json, "a"), "s"));
    cr_assert_null(json_first(json_get(json, "s")));
    cr_assert_eq(json_len(json_get(json, "missing")), 0);
    cr_assert_null(json_next(json_first(json_get(json, "a"))));
    cr_assert(json_f64(json_get(json, "n"), &f64) && json_bool(json_get(json, "b"), &flag));
    cr_assert(f64 > 1.4 && f64 < 1.6 && flag);
    json_free(json);
}

Test(json, iterates_members_in_order)
{
    json_t *json = parsed("{\"x\":1,\"y\":2}");
    const json_t *member = json_first(json);
    cr_assert_str_eq(json_key(member), "x");
    member = json_next(member);
    cr_assert_str_eq(json_key(member), "y");
    cr_assert_null(json_next(member));
    json_free(json);
}

Test(json, builds_arrays_of_objects)
{
    json_t *root = json_object(), *list = json_array(), *item = json_object();
    cr_assert(json_add(root, "list", list) && json_add(list, NULL, item));
    cr_assert(json_add_str(item, "s", "a\"\n") && json_add_bool(item, "b", false) && json_add_f64(item, "f", 0.5));
    char *text = json_print(root, false);
    cr_assert_str_eq(text, "{\"list\":[{\"s\":\"a\\\"\\n\",\"b\":false,\"f\":0.5}]}");
    free(text);
    json_free(root);
}

Test(json, takes_objects_of_very_many_keys)
{
    enum { KEYS = 50000 };
    char *text = malloc(KEYS * 16 + 2), *to = text;
    cr_assert_not_null(text);
    *to++ = '{';
    for (int i = 0; i < KEYS; i++) {
        to += sprintf(to, "%s\"k%d\":0", i == 0 ? "" : ",", i);
    }
    strcpy(to, "}");
    json_t *json = parsed(text);
    cr_assert_eq(json_len(json), KEYS);
    json_free(json);
    free(text);
}
