/* SPDX-License-Identifier: Apache-2.0
 * Addresses to listen at: how texts are parsed, and the socket that is opened there. */
#include "base/listen_address.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

static struct socket_address parsed(const char *text)
{
    struct socket_address a;
    struct error err = {0};
    cr_assert_eq(listen_address_parse(text, &a, &err), TCK_OK, "%s: %s", text, err.text);
    return a;
}

static void expect_ipv4(const char *text, const char *host, uint16_t port)
{
    struct socket_address a = parsed(text);
    const struct sockaddr_in *in = (const struct sockaddr_in *)&a.socket;
    cr_assert_eq(in->sin_family, AF_INET, "%s", text);
    cr_assert_str_eq(inet_ntoa(in->sin_addr), host);
    cr_assert_eq(ntohs(in->sin_port), port);
}

Test(listen_address, without_a_host_is_the_loopback_interface)
{
    expect_ipv4(":9464", "127.0.0.1", 9464);
    expect_ipv4("localhost:9464", "127.0.0.1", 9464);
}

Test(listen_address, takes_numeric_hosts)
{
    expect_ipv4("0.0.0.0:1", "0.0.0.0", 1);
    expect_ipv4("192.0.2.7:65535", "192.0.2.7", 65535);
    struct socket_address a = parsed("[2001:db8::7]:80");
    cr_assert_eq(a.socket.ss_family, AF_INET6);
    cr_assert_eq(ntohs(((const struct sockaddr_in6 *)&a.socket)->sin6_port), 80);
}

Test(listen_address, refuses_everything_else)
{
    static const char *const bad[] = {"",
                                      ":",
                                      "9464",
                                      "node:9464",
                                      "1.2.3:80",
                                      "1.2.3.4",
                                      "1.2.3.4:",
                                      ":65536",
                                      ":-1",
                                      ":+1",
                                      ": 80",
                                      ":80 ",
                                      ":0x50",
                                      "::1:80",
                                      "[::1:80",
                                      "[]:80",
                                      "[:80",
                                      "[1.2.3.4]:80",
                                      "1.2.3.4:1:",
                                      "*:9464",
                                      "http://:80",
                                      ":99999999999999999999",
                                      "[1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb:cccc]:80"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct socket_address a;
        struct error err = {0};
        cr_assert_eq(listen_address_parse(bad[i], &a, &err), TCK_ERR_CONFIG, "accepted \"%s\"", bad[i]);
        cr_assert(strstr(err.text, "HOST:PORT") != NULL, "%s", err.text);
    }
}

/* A client reaches the socket at the address that is reported. */
static void expect_answer(const char *text)
{
    struct socket_address a = parsed(text);
    char at[SOCKET_ADDRESS_TEXT];
    struct error err = {0};
    int fd = -1;
    cr_assert_eq(listen_address_open(&a, 4, &fd, at, &err), TCK_OK, "%s: %s", text, err.text);
    struct socket_address there = parsed(at);
    int client = socket(there.socket.ss_family, SOCK_STREAM, 0);
    cr_assert_eq(connect(client, (const struct sockaddr *)&there.socket, there.len), 0, "%s: %m", at);
    close(client);
    close(fd);
}

Test(listen_address, is_opened_with_any_free_port)
{
    expect_answer(":0");
}

Test(listen_address, of_ipv6_is_opened_where_there_is_ipv6)
{
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 in = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    if (fd < 0 || bind(fd, (const struct sockaddr *)&in, sizeof(in)) != 0) {
        cr_skip_test("no IPv6 here");
    }
    close(fd);
    expect_answer("[::1]:0");
}

Test(listen_address, that_is_in_use_is_an_error)
{
    struct socket_address a = parsed(":0");
    char at[SOCKET_ADDRESS_TEXT];
    struct error err = {0};
    int fd = -1, second = -1;
    cr_assert_eq(listen_address_open(&a, 4, &fd, at, &err), TCK_OK);
    a = parsed(at);
    cr_assert_neq(listen_address_open(&a, 4, &second, at, &err), TCK_OK);
    cr_assert_str_eq(err.text, "cannot listen: Address already in use");
    close(fd);
}
