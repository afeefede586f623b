/* SPDX-License-Identifier: Apache-2.0
 * Identifies listening sockets by inode, since a descriptor may be reused. */
#include "tiers/ucx_listeners.h"

#include "tiers/sockets.h"

#include <sys/socket.h>
#include <sys/stat.h>

static ino_t inode_of(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) ? st.st_ino : 0;
}

static void consider(void *ctx, int fd)
{
    struct listeners *listeners = ctx;
    ino_t inode = inode_of(fd);
    int domain = socket_option(fd, SO_DOMAIN);

    if (inode != 0 && listeners->count < LISTENERS_MAX && (domain == AF_INET || domain == AF_INET6) &&
        socket_option(fd, SO_ACCEPTCONN) != 0) {
        listeners->of[listeners->count].fd = fd;
        listeners->of[listeners->count].inode = inode;
        listeners->count++;
    }
}

bool listeners_find(struct listeners *out)
{
    out->count = 0;
    return descriptors_each(consider, out);
}

static bool has(const struct listeners *listeners, ino_t inode)
{
    for (size_t i = 0; i < listeners->count; i++) {
        if (listeners->of[i].inode == inode) {
            return true;
        }
    }
    return false;
}

void listeners_subtract(struct listeners *listeners, const struct listeners *before)
{
    size_t kept = 0;

    for (size_t i = 0; i < listeners->count; i++) {
        if (!has(before, listeners->of[i].inode)) {
            listeners->of[kept++] = listeners->of[i];
        }
    }
    listeners->count = kept;
}

bool listeners_have(const struct listeners *listeners, int fd)
{
    ino_t inode = inode_of(fd);

    return inode != 0 && has(listeners, inode);
}

bool listeners_are_open(const struct listeners *listeners)
{
    for (size_t i = 0; i < listeners->count; i++) {
        if (inode_of(listeners->of[i].fd) != listeners->of[i].inode) {
            return false;
        }
    }
    return true;
}
