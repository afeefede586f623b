/* SPDX-License-Identifier: Apache-2.0
 * Lists of addresses as text. */
#include "base/address_list.h"

#include <criterion/criterion.h>
#include <string.h>

static struct address_list list_of(const char *text)
{
    struct address_list list;
    struct error err;
    cr_assert_eq(address_list_read(text, &list, &err), TCK_OK, "%s: %s", text, err.text);
    return list;
}

Test(address_list, an_empty_text_has_no_items)
{
    cr_expect_eq(list_of("").count, 0);
}

Test(address_list, one_item_needs_no_comma)
{
    struct address_list list = list_of("eth0");
    cr_assert_eq(list.count, 1);
    cr_expect_str_eq(list.of[0], "eth0");
}

Test(address_list, keeps_the_order)
{
    struct address_list list = list_of("10.0.1.1:7,10.0.0.1:7,10.0.2.1:7");
    cr_assert_eq(list.count, 3);
    cr_expect_str_eq(list.of[0], "10.0.1.1:7");
    cr_expect_str_eq(list.of[2], "10.0.2.1:7");
}

Test(address_list, refuses_what_is_no_list)
{
    static const char *const wrong[] = {",", "a,", ",a", "a,,b", "a, b", "a b", "a,b,a", "a,b,c,d,e"};
    struct address_list list;
    struct error err;
    char long_one[400];
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        cr_expect_eq(address_list_read(wrong[i], &list, &err), TCK_ERR_INVAL, "%s", wrong[i]);
    }
    memset(long_one, 'a', sizeof(long_one) - 1);
    long_one[sizeof(long_one) - 1] = '\0';
    cr_expect_eq(address_list_read(long_one, &list, &err), TCK_ERR_INVAL);
    long_one[ADDRESS_ITEM] = '\0';
    cr_expect_eq(address_list_read(long_one, &list, &err), TCK_ERR_INVAL);
}

Test(address_list, is_made_of_items)
{
    char text[10] = "";
    cr_expect(address_list_add(text, sizeof(text), "a:1"));
    cr_expect(address_list_add(text, sizeof(text), "b:2"));
    cr_expect_not(address_list_add(text, sizeof(text), "c:3"));
    cr_expect_str_eq(text, "a:1,b:2");
}

Test(address_list, finds_a_host_whatever_its_port)
{
    struct address_list list = list_of("10.0.0.1:7,10.0.0.12:7");
    cr_expect_eq(address_list_host(&list, "10.0.0.12"), 1);
    cr_expect_eq(address_list_host(&list, "10.0.0.1:99"), 0);
    cr_expect_eq(address_list_host(&list, "10.0.0"), 2);
    cr_assert_eq(address_list_read("[fd00::1]:40123,[fd00::1:2]:40123", &list, NULL), TCK_OK);
    cr_expect_eq(address_list_host(&list, "[fd00::1:2]:9"), 1);
    cr_expect_eq(address_list_host(&list, "[fd00::1]:9"), 0);
    cr_expect_eq(address_list_host(&list, "[fd00::]:40123"), 2);
}
