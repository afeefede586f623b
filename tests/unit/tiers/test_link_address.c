/* SPDX-License-Identifier: Apache-2.0
 * Addresses of a link: parsing, printing, and choosing interface and address. */
#include "tiers/link_address.h"

#include <criterion/criterion.h>
#include <string.h>

static struct ip ipv(const char *text)
{
    struct ip ip = {0};
    cr_assert(ip_parse(text, &ip), "%s", text);
    return ip;
}

Test(link_address, refuses_texts_that_are_no_address_with_port)
{
    static const char *const wrong[] = {
        "",          ":",           "10.0.0.1:",  "10.0.0.1:x",  "10.0.0.1:+1",    "10.0.0.1: 1",
        "10.0.0:80", "10.0.0.1:1x", "10.0.0.1:0", "[fd00::1]:0", "10.0.0.1:65536", "10.0.0.1:99999999999999999999"};
    struct socket_address address;
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
    struct ip loopback = ipv("127.0.0.1");
    cr_expect(ip_is(&place.address, &loopback));
}

Test(link_address, finds_an_interface_and_an_address_if_none_is_requested)
{
    struct link_place place;
    cr_assert_eq(link_place_find("", "", &place, NULL), TCK_OK);
    cr_expect_neq(place.device[0], '\0');
    cr_expect_not(ip_is_none(&place.address));
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
    return (struct link_place){.device = "x", .address = ipv(address), .mask = ipv(mask)};
}

static size_t toward(const struct link_places *places, const char *remote, size_t i)
{
    struct ip ip = ipv(remote);
    return link_places_toward(places, &ip, i);
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
    cr_expect_eq(toward(&places, "10.0.1.7", 0), 1);
    cr_expect_eq(toward(&places, "10.0.0.7", 1), 0);
}

Test(link_address, connects_across_networks_from_the_place_with_the_same_number)
{
    struct link_places places = {2,
                                 {place_in("10.0.0.1", "255.255.255.0"), {.device = "x", .address = ipv("10.0.1.1")}}};
    cr_expect_eq(toward(&places, "10.9.0.1", 0), 0);
    cr_expect_eq(toward(&places, "10.9.1.1", 1), 1);
    cr_expect_eq(toward(&places, "10.9.2.1", 2), 1, "the last one");
}

Test(link_address, finds_networks_of_ipv6_addresses)
{
    struct link_places places = {
        2, {place_in("fd00:0:0:1::1", "ffff:ffff:ffff:ffff::"), place_in("fd00:0:0:2::1", "ffff:ffff:ffff:ffff::")}};
    cr_expect_eq(toward(&places, "fd00:0:0:2::7", 0), 1);
    cr_expect_eq(toward(&places, "fd00:0:0:1::7", 1), 0);
    cr_expect_eq(toward(&places, "10.0.0.1", 1), 1, "a different family");
}

Test(link_address, an_ipv6_address_that_is_valid_in_its_own_network_alone_is_refused)
{
    struct link_place place;
    struct error err;
    cr_assert_eq(link_place_find("", "fe80::1", &place, &err), TCK_ERR_INVAL);
    cr_expect_not_null(strstr(err.text, "fe80::1"));
    cr_assert_eq(link_place_find("", "::ffff:127.0.0.1", &place, &err), TCK_ERR_INVAL);
    cr_expect_not_null(strstr(err.text, "IPv4"));
}

Test(link_address, the_addresses_of_an_agent_are_of_one_family)
{
    struct link_places places;
    struct error err;
    if (!link_places_are_ipv6("", "::1,192.0.2.1")) {
        cr_skip_test("no IPv6 here");
    }
    cr_assert_eq(link_places_find("", "127.0.0.1,::1", &places, &err), TCK_ERR_CONFIG);
    cr_expect_not_null(strstr(err.text, "net_address"));
}

Test(link_address, knows_the_family_before_ucx_is_loaded)
{
    cr_expect(link_places_are_ipv6("", "::1"));
    cr_expect_not(link_places_are_ipv6("lo", ""), "an interface that has both");
    cr_expect_not(link_places_are_ipv6("nosuch7,lo", ""));
    cr_expect_not(link_places_are_ipv6("nosuch7", ""), "link_new reports it");
}
