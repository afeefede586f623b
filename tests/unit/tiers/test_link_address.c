/* SPDX-License-Identifier: Apache-2.0
 * Addresses of a link: parsing, printing, and choosing interface and address. */
#include "tiers/link_address.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <string.h>

Test(link_address, prints_what_it_parsed)
{
    struct sockaddr_in address;
    char text[ADDRESS_TEXT];
    cr_assert_eq(link_address_parse("10.1.2.3:40123", &address, NULL), TCK_OK);
    link_address_print(&address, text);
    cr_expect_str_eq(text, "10.1.2.3:40123");
}

Test(link_address, refuses_texts_that_are_no_address_with_port)
{
    static const char *const wrong[] = {"",
                                        ":",
                                        "10.0.0.1:",
                                        "10.0.0.1:x",
                                        "10.0.0.1:+1",
                                        "10.0.0.1: 1",
                                        "10.0.0:80",
                                        "10.0.0.1:1x",
                                        "10.0.0.1:65536",
                                        "10.0.0.1:99999999999999999999"};
    struct sockaddr_in address;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct error err;
        cr_expect_eq(link_address_parse(wrong[i], &address, &err), TCK_ERR_INVAL, "%s", wrong[i]);
    }
}

Test(link_address, finds_the_interface_of_an_address)
{
    struct link_place place;
    cr_assert_eq(link_place_find("", "127.0.0.1", &place, NULL), TCK_OK);
    cr_expect_str_eq(place.device, "lo");
}

Test(link_address, finds_the_address_of_an_interface)
{
    struct link_place place;
    cr_assert_eq(link_place_find("lo", "", &place, NULL), TCK_OK);
    cr_expect_eq(place.address.s_addr, htonl(INADDR_LOOPBACK));
}

Test(link_address, finds_an_interface_and_an_address_if_none_is_requested)
{
    struct link_place place;
    cr_assert_eq(link_place_find("", "", &place, NULL), TCK_OK);
    cr_expect_neq(place.device[0], '\0');
    cr_expect_neq(place.address.s_addr, 0);
}

Test(link_address, names_an_interface_that_does_not_exist)
{
    struct link_place place;
    struct error err;
    cr_assert_eq(link_place_find("nosuch7", "", &place, &err), TCK_ERR_NOENT);
    cr_expect_not_null(strstr(err.text, "nosuch7"));
}
