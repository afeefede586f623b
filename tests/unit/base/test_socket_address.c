/* SPDX-License-Identifier: Apache-2.0
 * Addresses as texts and as the kernel has them. */
#include "base/socket_address.h"

#include <criterion/criterion.h>
#include <netinet/in.h>

static void expect_round(const char *text, sa_family_t family, socklen_t len, uint16_t port)
{
    struct socket_address address;
    char again[SOCKET_ADDRESS_TEXT];
    cr_assert(socket_address_parse(text, &address), "%s", text);
    cr_expect_eq(address.socket.ss_family, family);
    cr_expect_eq(address.len, len);
    cr_expect_eq(socket_address_port((struct sockaddr *)&address.socket), port);
    socket_address_print((struct sockaddr *)&address.socket, again);
    cr_expect_str_eq(again, text);
}

Test(socket_address, prints_what_it_parsed)
{
    expect_round("10.1.2.3:40123", AF_INET, sizeof(struct sockaddr_in), 40123);
    expect_round("[fd00::1]:0", AF_INET6, sizeof(struct sockaddr_in6), 0);
    expect_round("[1111:2222:3333:4444:5555:6666:7777:8888]:65535", AF_INET6, sizeof(struct sockaddr_in6), 65535);
}

Test(socket_address, refuses_everything_else)
{
    static const char *const wrong[] = {"",
                                        ":",
                                        "]:1",
                                        "[]:1",
                                        "[:1",
                                        "10.0.0.1",
                                        "a:1",
                                        "10.0.0.1:",
                                        "10.0.0.1:x",
                                        "10.0.0:1",
                                        "10.0.0.1:+1",
                                        "10.0.0.1: 1",
                                        "::1",
                                        "fd00::1:80",
                                        "[10.0.0.1]:1",
                                        "[fd00::1]",
                                        "fd00::1]:1",
                                        "[fd00::1:1",
                                        "[::]",
                                        "10.0.0.1:1x",
                                        "[fe80::1%lo]:1",
                                        "1.2.3.4:65536"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct socket_address address;
        cr_expect_not(socket_address_parse(wrong[i], &address), "\"%s\"", wrong[i]);
    }
}

static struct ip ip(const char *text)
{
    struct ip out = {0};
    cr_assert(ip_parse(text, &out), "%s", text);
    return out;
}

static bool in_network(const char *a, const char *b, const char *mask)
{
    struct ip of_a = ip(a), of_b = ip(b), of_mask = ip(mask);
    return ip_in_network(&of_a, &of_b, &of_mask);
}

Test(socket_address, compares_addresses_and_networks)
{
    struct ip a = ip("10.0.0.1"), mapped = ip("::ffff:10.0.0.1"), none = {0};
    cr_expect(ip_is(&a, &a));
    cr_expect_not(ip_is(&a, &mapped));
    cr_expect_not(ip_is_none(&a));
    cr_expect(ip_is_none(&none));
    cr_expect_not(ip_in_network(&a, &a, &none));
    cr_expect(in_network("10.0.0.1", "10.0.0.2", "255.255.255.0"));
    cr_expect_not(in_network("10.0.0.1", "10.0.1.1", "255.255.255.0"));
    cr_expect(in_network("fd00::1", "fd00::2", "ffff:ffff:ffff:ffff::"));
    cr_expect_not(in_network("fd00::1", "fd01::1", "ffff:ffff:ffff:ffff::"));
}

Test(socket_address, knows_addresses_that_are_not_valid_everywhere)
{
    struct ip local = ip("fe80::1"), wide = ip("febf::1"), global = ip("fec0::1"), mapped = ip("::ffff:10.0.0.1"),
              v4 = ip("254.128.0.1");
    cr_expect(ip_is_link_local(&local));
    cr_expect(ip_is_link_local(&wide));
    cr_expect_not(ip_is_link_local(&global));
    cr_expect_not(ip_is_link_local(&v4));
    cr_expect(ip_is_mapped(&mapped));
    cr_expect_not(ip_is_mapped(&global));
    cr_expect_not(ip_is_mapped(&v4));
}

Test(socket_address, of_another_kind_of_socket_has_no_address)
{
    struct sockaddr_storage local = {.ss_family = AF_UNIX};
    char text[SOCKET_ADDRESS_TEXT];
    struct ip none = ip_of((struct sockaddr *)&local);
    cr_expect(ip_is_none(&none));
    cr_expect_eq(socket_address_port((struct sockaddr *)&local), 0);
    socket_address_print((struct sockaddr *)&local, text);
    cr_expect_str_eq(text, "?:0");
}
