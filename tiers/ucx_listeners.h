/* SPDX-License-Identifier: Apache-2.0
 * Whether UCX still listens. If no descriptor is left for somebody who connects, UCX 1.13 closes for good the socket on
 * which it does (uct_tcp_iface_connect_handler, in uct/tcp/tcp_iface.c), and from then on no new session comes about.
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

/* Those there are now, EARS_MAX at most. */
void listeners_find(struct ears *out);
/* Takes those of before out. */
void listeners_missing(struct ears *ears, const struct ears *before);
/* All are still there. */
bool listeners_restore(const struct ears *ears);

#endif
