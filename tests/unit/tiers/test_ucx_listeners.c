/* SPDX-License-Identifier: Apache-2.0
 * Detects whether listening sockets are still open. */
#include "tiers/ucx_listeners.h"

#include <criterion/criterion.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static int listening(int domain)
{
    int fd = socket(domain, SOCK_STREAM, 0);
    cr_assert_geq(fd, 0);
    cr_assert_eq(listen(fd, 1), 0); /* the kernel chooses its address */
    return fd;
}

static struct listeners listeners_since(const struct listeners *before)
{
    struct listeners listeners;
    cr_assert(listeners_find(&listeners));
    listeners_subtract(&listeners, before);
    return listeners;
}

Test(link_listeners, only_listening_sockets_that_were_opened_since_then_are_checked)
{
    struct listeners before, listeners;
    int old = listening(AF_INET);
    cr_assert(listeners_find(&before));
    int silent = socket(AF_INET, SOCK_STREAM, 0), fd = listening(AF_INET);
    listeners = listeners_since(&before);
    cr_assert_eq(listeners.count, 1);
    cr_assert_eq(listeners.of[0].fd, fd);
    cr_assert(listeners_have(&listeners, fd));
    cr_assert_not(listeners_have(&listeners, old));
    cr_assert_not(listeners_have(&listeners, STDIN_FILENO));
    close(old);
    close(silent);
    cr_assert(listeners_are_open(&listeners));
    close(fd);
    cr_assert_not(listeners_are_open(&listeners));
}

Test(link_listeners, a_descriptor_that_was_reused_for_another_socket_does_not_count_as_open)
{
    struct listeners before, listeners;
    cr_assert(listeners_find(&before));
    int fd = listening(AF_INET);
    listeners = listeners_since(&before);
    int other = listening(AF_INET);
    cr_assert_eq(dup2(other, fd), fd);
    cr_assert_not(listeners_are_open(&listeners));
    close(fd);
    close(other);
}
