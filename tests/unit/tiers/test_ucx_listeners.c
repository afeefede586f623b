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

static struct ears ears_since(const struct ears *before)
{
    struct ears ears;
    listeners_find(&ears);
    listeners_missing(&ears, before);
    return ears;
}

Test(link_ears, only_sockets_that_listen_and_came_since_are_looked_at)
{
    struct ears before, ears;
    int old = listening(AF_INET);
    listeners_find(&before);
    int silent = socket(AF_INET, SOCK_STREAM, 0), fd = listening(AF_INET);
    ears = ears_since(&before);
    cr_assert_eq(ears.count, 1);
    cr_assert_eq(ears.of[0].fd, fd);
    close(old);
    close(silent);
    cr_assert(listeners_restore(&ears));
    close(fd);
    cr_assert_not(listeners_restore(&ears));
}

Test(link_ears, a_descriptor_that_was_given_to_something_else_does_not_hear)
{
    struct ears before, ears;
    listeners_find(&before);
    int fd = listening(AF_INET);
    ears = ears_since(&before);
    int other = listening(AF_INET);
    cr_assert_eq(dup2(other, fd), fd);
    cr_assert_not(listeners_restore(&ears));
    close(fd);
    close(other);
}
