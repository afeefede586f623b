/* SPDX-License-Identifier: Apache-2.0
 * Whether UCX still listens. If no descriptor is left for an incoming connection, UCX 1.13 closes its listening
 * socket permanently (uct_tcp_iface_connect_handler, in uct/tcp/tcp_iface.c), and no new session can be made from
 * then on. */
#ifndef TCK_TIERS_UCX_LISTENERS_H
#define TCK_TIERS_UCX_LISTENERS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define LISTENERS_MAX 64

/* Sockets on which this process listens for TCP connections. */
struct listeners {
    size_t count;
    struct {
        int fd;
        ino_t inode;
    } of[LISTENERS_MAX];
};

/* Finds the current ones, LISTENERS_MAX at most. False: the descriptors cannot be listed; errno says why. */
bool listeners_find(struct listeners *out);
/* Removes those in before. */
void listeners_subtract(struct listeners *listeners, const struct listeners *before);
/* Whether the descriptor is one of them. */
bool listeners_have(const struct listeners *listeners, int fd);
/* True if all still exist. */
bool listeners_are_open(const struct listeners *listeners);

#endif
