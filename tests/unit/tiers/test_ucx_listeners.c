/* SPDX-License-Identifier: Apache-2.0
 * Whether sockets that listen are still there. */
#include "tiers/ucx_listeners.h"

#include <criterion/criterion.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static int listening(int domain)
{
    int fd = socket(domain, SOCK_STREAM, 0);
    cr_assert_geq(fd, 0);
    cr_assert_eq(listen(fd, 1), 0); /* an address is found for it */
    return fd;
}

static struct listeners ears_since(const struct listeners *before)
{
    struct listeners listeners;
    listeners_find(&listeners);
    listeners_subtract(&listeners, before);
    return listeners;
}

Test(link_ears, only_sockets_that_listen_and_came_since_are_looked_at)
{
    struct listeners before, listeners;
    int old = listening(AF_INET);
    listeners_find(&before);
    int silent = socket(AF_INET, SOCK_STREAM, 0), fd = listening(AF_INET);
    listeners = ears_since(&before);
    cr_assert_eq(listeners.count, 1);
    cr_assert_eq(listeners.of[0].fd, fd);
    close(old);
    close(silent);
    cr_assert(listeners_are_open(&listeners));
    close(fd);
    cr_assert_not(listeners_are_open(&listeners));
}

Test(link_ears, a_descriptor_that_was_given_to_something_else_does_not_hear)
{
    struct listeners before, listeners;
    listeners_find(&before);
    int fd = listening(AF_INET);
    listeners = ears_since(&before);
    int other = listening(AF_INET);
    cr_assert_eq(dup2(other, fd), fd);
    cr_assert_not(listeners_are_open(&listeners));
    close(fd);
    close(other);
}
