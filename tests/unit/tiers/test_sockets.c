/* SPDX-License-Identifier: Apache-2.0
 * Marked sockets, and UCX's environment for the class of RDMA. */
#include "tiers/link.h"
#include "tiers/sockets.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define CS1 0x20

static int tos_of(int fd)
{
    int tos = -1;
    socklen_t len = sizeof(tos);
    cr_assert_eq(getsockopt(fd, IPPROTO_IP, IP_TOS, &tos, &len), 0);
    return tos;
}

static int listen_here(struct sockaddr_in *at)
{
    socklen_t len = sizeof(*at);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    cr_assert_eq(bind(fd, (struct sockaddr *)at, sizeof(*at)), 0);
    cr_assert_eq(listen(fd, 4), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)at, &len), 0);
    return fd;
}

static int connect_to(const struct sockaddr_in *at)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(connect(fd, (const struct sockaddr *)at, sizeof(*at)), 0);
    return fd;
}

static bool any(const void *ctx, int fd)
{
    (void)ctx;
    (void)fd;
    return true;
}

static bool is_this(const void *ctx, int fd)
{
    return fd == *(const int *)ctx;
}

Test(sockets, marks_connections_and_what_listeners_accept_later)
{
    struct sockaddr_in at;
    int listener = listen_here(&at), before = connect_to(&at);
    cr_assert(sockets_mark(CS1, any, NULL));
    cr_expect_eq(tos_of(listener), CS1);
    cr_expect_eq(tos_of(before), CS1);
    int later = connect_to(&at);
    cr_expect_eq(tos_of(later), 0, "it is marked by the next call");
    close(accept(listener, NULL, NULL));
    int accepted = accept(listener, NULL, NULL);
    cr_expect_eq(tos_of(accepted), CS1);
    cr_assert(sockets_mark(CS1, any, NULL));
    cr_expect_eq(tos_of(later), CS1);
}

Test(sockets, marks_those_of_ipv6)
{
    int class = -1, fd = socket(AF_INET6, SOCK_STREAM, 0);
    socklen_t len = sizeof(class);
    if (fd < 0) {
        cr_skip_test("no IPv6 here");
    }
    cr_assert(sockets_mark(CS1, any, NULL));
    cr_assert_eq(getsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &class, &len), 0);
    cr_expect_eq(class, CS1);
}

Test(sockets, leaves_other_descriptors_alone)
{
    int udp = socket(AF_INET, SOCK_DGRAM, 0), pair[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    cr_assert(sockets_mark(CS1, any, NULL));
    cr_expect_eq(tos_of(udp), 0);
}

Test(sockets, marks_only_those_that_are_chosen)
{
    struct sockaddr_in at;
    int listener = listen_here(&at), ours = connect_to(&at), other = connect_to(&at);
    cr_assert(sockets_mark(CS1, is_this, &ours));
    cr_expect_eq(tos_of(ours), CS1);
    cr_expect_eq(tos_of(other), 0);
    cr_expect_eq(tos_of(listener), 0);
}

Test(sockets, that_cannot_be_listed_are_not_taken_for_marked)
{
    struct rlimit before, none_left;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    none_left = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none_left), 0);
    errno = 0;
    bool marked = sockets_mark(CS1, any, NULL);
    int why = errno;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    cr_assert_not(marked);
    cr_assert_eq(why, EMFILE);
}

Test(link_environment_family, sets_what_the_user_has_not_set)
{
    unsetenv("UCX_TCP_AF_PRIO");
    link_environment_family(true);
    cr_expect_str_eq(getenv("UCX_TCP_AF_PRIO"), "inet6");
    link_environment_family(false);
    cr_expect_str_eq(getenv("UCX_TCP_AF_PRIO"), "inet6");
}

Test(link_environment_class, sets_what_the_user_has_not_set)
{
    unsetenv("UCX_IB_TRAFFIC_CLASS");
    unsetenv("UCX_IB_SL");
    link_environment_class(0, 0);
    cr_expect_null(getenv("UCX_IB_TRAFFIC_CLASS"), "UCX chooses");
    cr_expect_null(getenv("UCX_IB_SL"));
    link_environment_class(26, 3);
    cr_expect_str_eq(getenv("UCX_IB_TRAFFIC_CLASS"), "106", "what UCX itself uses for RoCE: af31, and capable of ECN");
    cr_expect_str_eq(getenv("UCX_IB_SL"), "3");
    link_environment_class(8, 4);
    cr_expect_str_eq(getenv("UCX_IB_TRAFFIC_CLASS"), "106");
    cr_expect_str_eq(getenv("UCX_IB_SL"), "3");
}
