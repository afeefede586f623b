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

/* ---- several ---- */

static struct link_place place_in(const char *address, const char *mask)
{
    struct link_place place = {.device = "x"};
    inet_pton(AF_INET, address, &place.address);
    inet_pton(AF_INET, mask, &place.mask);
    return place;
}

static struct in_addr ipv4(const char *text)
{
    struct in_addr address = {0};
    inet_pton(AF_INET, text, &address);
    return address;
}

Test(link_address, one_place_needs_no_carrier)
{
    struct link_places places;
    cr_assert_eq(link_places_find("lo", "", &places, NULL), TCK_OK);
    cr_expect_eq(places.count, 1);
}

Test(link_address, of_several_places_does_without_one_that_is_not_there)
{
    struct link_places places;
    cr_assert_eq(link_places_find("nosuch7,lo", "", &places, NULL), TCK_OK);
    cr_assert_eq(places.count, 1);
    cr_expect_str_eq(places.of[0].device, "lo");
}

Test(link_address, names_the_first_of_several_places_if_none_is_there)
{
    struct link_places places;
    struct error err;
    cr_assert_eq(link_places_find("nosuch7,nosuch8", "", &places, &err), TCK_ERR_NOENT);
    cr_expect_not_null(strstr(err.text, "nosuch7"));
}

Test(link_address, connects_from_the_place_in_the_same_network)
{
    struct link_places places = {2, {place_in("10.0.0.1", "255.255.255.0"), place_in("10.0.1.1", "255.255.255.0")}};
    cr_expect_eq(link_places_toward(&places, ipv4("10.0.1.7"), 0), 1);
    cr_expect_eq(link_places_toward(&places, ipv4("10.0.0.7"), 1), 0);
}

Test(link_address, connects_across_networks_from_the_place_with_the_same_number)
{
    struct link_places places = {2, {place_in("10.0.0.1", "255.255.255.0"), place_in("10.0.1.1", "0.0.0.0")}};
    cr_expect_eq(link_places_toward(&places, ipv4("10.9.0.1"), 0), 0);
    cr_expect_eq(link_places_toward(&places, ipv4("10.9.1.1"), 1), 1);
    cr_expect_eq(link_places_toward(&places, ipv4("10.9.2.1"), 2), 1, "the last one");
}
