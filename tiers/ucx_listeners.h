/* SPDX-License-Identifier: Apache-2.0
 * Whether UCX still listens. If no descriptor is left for an incoming connection, UCX 1.13 closes for good the socket
 * on which it does (uct_tcp_iface_connect_handler, in uct/tcp/tcp_iface.c), and from then on no new session comes
 * about.
 */
#ifndef TCK_TIERS_LINK_EARS_H
#define TCK_TIERS_LINK_EARS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define EARS_MAX 64

/* Sockets on which this process listens for TCP connections. */
struct ears {
    size_t count;
    struct {
        int fd;
        ino_t inode;
    } of[EARS_MAX];
};

/* Finds the current ones, EARS_MAX at most. */
void listeners_find(struct ears *out);
/* Removes those in before. */
void listeners_missing(struct ears *ears, const struct ears *before);
/* True if all still exist. */
bool listeners_restore(const struct ears *ears);

#endif
