/* SPDX-License-Identifier: Apache-2.0
 * Finds sockets in /proc/self/fd. One that is closed meanwhile, so that its descriptor is another file's, does no harm:
 * each call on it either fails or applies to another socket of this process. */
#include "tiers/sockets.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

bool descriptors_each(void (*call)(void *ctx, int fd), void *ctx)
{
    DIR *dir = opendir("/proc/self/fd");
    const struct dirent *entry;

    if (dir == NULL) {
        return false;
    }
    while ((entry = readdir(dir)) != NULL) { /* NOLINT(concurrency-mt-unsafe): our own stream */
        char *end;
        long fd = strtol(entry->d_name, &end, 10);

        if (*end == '\0') {
            call(ctx, (int)fd);
        }
    }
    closedir(dir);
    return true;
}

int socket_option(int fd, int name)
{
    int value = 0;
    socklen_t len = sizeof(value);

    return getsockopt(fd, SOL_SOCKET, name, &value, &len) == 0 ? value : 0;
}

struct mark {
    int tos, failed_errno;
    socket_chosen_fn *chosen;
    const void *ctx;
};

static void mark(void *ctx, int fd)
{
    struct mark *m = ctx;
    int tos = 0, domain = socket_option(fd, SO_DOMAIN);
    int level = domain == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP, name = domain == AF_INET6 ? IPV6_TCLASS : IP_TOS;
    socklen_t len = sizeof(tos);

    if ((domain != AF_INET && domain != AF_INET6) || socket_option(fd, SO_PROTOCOL) != IPPROTO_TCP ||
        getsockopt(fd, level, name, &tos, &len) != 0 || tos == m->tos || !m->chosen(m->ctx, fd)) {
        return;
    }
    if (setsockopt(fd, level, name, &m->tos, sizeof(m->tos)) != 0 && errno != EBADF && errno != ENOTSOCK) {
        m->failed_errno = errno;
    }
}

bool sockets_mark(uint8_t tos, socket_chosen_fn *chosen, const void *ctx)
{
    struct mark m = {.tos = tos, .chosen = chosen, .ctx = ctx};

    if (!descriptors_each(mark, &m)) {
        return false;
    }
    errno = m.failed_errno;
    return m.failed_errno == 0;
}
