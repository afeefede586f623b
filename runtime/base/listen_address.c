/* SPDX-License-Identifier: Apache-2.0
 * Where a server listens, as users write it. */
#include "base/listen_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static tck_status_t not_one(const char *text, struct error *err)
{
    return error_set(err, TCK_ERR_CONFIG,
                     "\"%.100s\" is not HOST:PORT with a numeric host: give, for example, 127.0.0.1:9464, "
                     "0.0.0.0:9464 for all interfaces, or :9464 for the loopback interface",
                     text);
}

static bool parse_port(const char *text, uint16_t *out)
{
    size_t digits = strspn(text, "0123456789");
    unsigned long port = strtoul(text, NULL, 10);
    if (digits == 0 || digits > 5 || text[digits] != '\0' || port > UINT16_MAX) {
        return false;
    }
    *out = (uint16_t)port;
    return true;
}

static bool parse_ipv4(const char *host, uint16_t port, struct listen_address *out)
{
    struct sockaddr_in *in = (struct sockaddr_in *)&out->socket;
    bool loopback = host[0] == '\0' || strcmp(host, "localhost") == 0;
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    out->len = sizeof(*in);
    return inet_pton(AF_INET, loopback ? "127.0.0.1" : host, &in->sin_addr) == 1;
}

/* In brackets, because an address has colons itself. */
static bool parse_ipv6(char *host, uint16_t port, struct listen_address *out)
{
    struct sockaddr_in6 *in = (struct sockaddr_in6 *)&out->socket;
    size_t len = strlen(host);
    if (host[len - 1] != ']') {
        return false;
    }
    host[len - 1] = '\0';
    in->sin6_family = AF_INET6;
    in->sin6_port = htons(port);
    out->len = sizeof(*in);
    return inet_pton(AF_INET6, host + 1, &in->sin6_addr) == 1;
}

tck_status_t listen_address_parse(const char *text, struct listen_address *out, struct error *err)
{
    struct listen_address parsed = {0};
    const char *colon = strrchr(text, ':');
    char host[INET6_ADDRSTRLEN + 2];
    uint16_t port;
    if (colon == NULL || (size_t)(colon - text) >= sizeof(host) || !parse_port(colon + 1, &port)) {
        return not_one(text, err);
    }
    snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
    if (!(host[0] == '[' ? parse_ipv6(host, port, &parsed) : parse_ipv4(host, port, &parsed))) {
        return not_one(text, err);
    }
    *out = parsed;
    return TCK_OK;
}

/* The address that the socket has. */
static void describe(int fd, char out[LISTEN_ADDRESS_TEXT])
{
    struct listen_address at = {.len = sizeof(at.socket)};
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&at.socket;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&at.socket;
    char host[INET6_ADDRSTRLEN] = "?";
    (void)getsockname(fd, (struct sockaddr *)&at.socket, &at.len);
    if (at.socket.ss_family == AF_INET6) {
        (void)inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
        snprintf(out, LISTEN_ADDRESS_TEXT, "[%s]:%u", host, ntohs(v6->sin6_port));
    } else {
        (void)inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
        snprintf(out, LISTEN_ADDRESS_TEXT, "%s:%u", host, ntohs(v4->sin_port));
    }
}

tck_status_t listen_address_open(const struct listen_address *address, int backlog, int *fd_out,
                                 char at_out[LISTEN_ADDRESS_TEXT], struct error *err)
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
