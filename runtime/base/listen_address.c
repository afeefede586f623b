/* SPDX-License-Identifier: Apache-2.0
 * Where a server listens, as users write it. */
#include "base/listen_address.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static tck_status_t not_one(const char *text, struct error *err)
{
    return error_set(err, TCK_ERR_CONFIG,
                     "\"%.100s\" is not HOST:PORT with a numeric host: give, for example, 127.0.0.1:9464, "
                     "0.0.0.0:9464 for all interfaces, or :9464 for the loopback interface",
                     text);
}

tck_status_t listen_address_parse(const char *text, struct socket_address *out, struct error *err)
{
    static const char loopback[] = "127.0.0.1";
    const char *colon = strrchr(text, ':');
    char full[SOCKET_ADDRESS_TEXT];
    bool here = colon != NULL && (colon == text || strncmp(text, "localhost:", strlen("localhost:")) == 0);
    int len = here ? snprintf(full, sizeof(full), "%s%s", loopback, strchr(text, ':'))
                   : snprintf(full, sizeof(full), "%s", text);
    if (len < 0 || (size_t)len >= sizeof(full) || !socket_address_parse(full, out)) {
        return not_one(text, err);
    }
    return TCK_OK;
}

/* The address that the socket has. */
static void describe(int fd, char out[SOCKET_ADDRESS_TEXT])
{
    struct sockaddr_storage at = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof(at);
    (void)getsockname(fd, (struct sockaddr *)&at, &len);
    socket_address_print((const struct sockaddr *)&at, out);
}

tck_status_t listen_address_open(const struct socket_address *address, int backlog, int *fd_out,
                                 char at_out[SOCKET_ADDRESS_TEXT], struct error *err)
{
    int on = 1;
    int fd = socket(address->socket.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* Connections of a predecessor that are being closed do not keep the port from its successor. */
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(fd, (const struct sockaddr *)&address->socket, address->len) != 0 || listen(fd, backlog) != 0) {
        tck_status_t status = error_set(err, status_of_errno(errno), "cannot listen: %m");
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    describe(fd, at_out);
    *fd_out = fd;
    return TCK_OK;
}
