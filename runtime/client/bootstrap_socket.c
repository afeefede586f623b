/* SPDX-License-Identifier: Apache-2.0
 * Sockets of a bootstrap. */
#include "client/bootstrap_socket.h"

#include "base/clock.h"
#include "base/secret.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ONE_ADDRESS_MS 3000  /* a connection attempt, before the next address is tried */
#define GREETING_MS    5000  /* a rank that has connected shows its ticket at once */
#define ANSWER_MS      60000 /* while the listener turns others away */
#define HALF           ((size_t)TICKET_BYTES / 2)

struct greeting {
    uint8_t ticket[HALF];
    uint32_t rank; /* network order */
};

/* ---- bytes --------------------------------------------------------------------------------------------------- */

static tck_status_t set_timeout(int fd, int timeout_ms, struct error *err)
{
    struct timeval limit = {.tv_sec = timeout_ms / 1000, .tv_usec = (suseconds_t)(timeout_ms % 1000) * 1000};

    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0) {
        return error_set(err, TCK_ERR_IO, "cannot limit the time of a connection: %m");
    }
    return TCK_OK;
}

tck_status_t bootstrap_settle(int fd, int timeout_ms, struct error *err)
{
    const int on = 1, idle_s = 15, interval_s = 5, probes = 4;

    if (setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s)) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s)) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes)) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) {
        return error_set(err, TCK_ERR_IO, "cannot set up a connection: %m");
    }
    return set_timeout(fd, timeout_ms, err);
}

static tck_status_t closed(struct error *err)
{
    return error_set(err, TCK_ERR_UNREACHABLE, "it has closed the connection: it ended, or another rank failed");
}

static tck_status_t failed(const char *doing, struct error *err)
{
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return error_set(err, TCK_ERR_TIMEDOUT, "%s: nothing moves any more", doing);
    }
    if (errno == ECONNRESET || errno == EPIPE) {
        return closed(err);
    }
    return error_set(err, TCK_ERR_UNREACHABLE, "%s: %m", doing);
}

bool bootstrap_is_closed(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

tck_status_t bootstrap_send(int fd, const void *data, size_t len, struct error *err)
{
    const uint8_t *from = data;

    while (len > 0) {
        ssize_t n = send(fd, from, len, MSG_NOSIGNAL);

        if (n < 0 && errno != EINTR) {
            return failed("sending", err);
        }
        if (n > 0) {
            from += n;
            len -= (size_t)n;
        }
    }
    return TCK_OK;
}

tck_status_t bootstrap_receive(int fd, void *data, size_t len, struct error *err)
{
    uint8_t *to = data;

    while (len > 0) {
        ssize_t n = recv(fd, to, len, 0);

        if (n == 0) {
            return closed(err);
        }
        if (n < 0 && errno != EINTR) {
            return failed("receiving", err);
        }
        if (n > 0) {
            to += n;
            len -= (size_t)n;
        }
    }
    return TCK_OK;
}

/* ---- listen -------------------------------------------------------------------------------------------------- */

/* Link-local addresses are left out, since they mean nothing without an interface of the other side. */
static bool is_useful(const struct ifaddrs *one, bool loopback)
{
    if (one->ifa_addr == NULL || (one->ifa_flags & IFF_UP) == 0 || ((one->ifa_flags & IFF_LOOPBACK) != 0) != loopback) {
        return false;
    }
    if (one->ifa_addr->sa_family == AF_INET6) {
        return !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)one->ifa_addr)->sin6_addr);
    }
    return one->ifa_addr->sa_family == AF_INET;
}

static void add_addresses(const struct ifaddrs *all, bool loopback, int family, struct bootstrap_card *card)
{
    for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
        size_t used = strlen(card->addresses);
        socklen_t len = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        char text[INET6_ADDRSTRLEN];

        if (!is_useful(one, loopback) || one->ifa_addr->sa_family != family ||
            getnameinfo(one->ifa_addr, len, text, sizeof(text), NULL, 0, NI_NUMERICHOST) != 0 ||
            used + strlen(text) + 2 > sizeof(card->addresses)) {
            continue;
        }
        snprintf(card->addresses + used, sizeof(card->addresses) - used, "%s%s", used > 0 ? "," : "", text);
    }
}

/* The loopback's come last: they lead to another rank only on the same machine. */
static tck_status_t find_addresses(struct bootstrap_card *card, struct error *err)
{
    struct ifaddrs *all = NULL;

    if (getifaddrs(&all) != 0) {
        return error_set(err, TCK_ERR_IO, "cannot list the network interfaces: %m");
    }
    add_addresses(all, false, AF_INET, card);
    add_addresses(all, false, AF_INET6, card);
    add_addresses(all, true, AF_INET, card);
    freeifaddrs(all);
    return TCK_OK;
}

static tck_status_t fill_addresses(const char *addresses, struct bootstrap_card *card, struct error *err)
{
    memset(card->addresses, 0, sizeof(card->addresses));
    if (addresses == NULL) {
        return find_addresses(card, err);
    }
    if (strlen(addresses) >= sizeof(card->addresses)) {
        return error_set(err, TCK_ERR_INVAL, "the list of addresses is longer than %zu bytes", sizeof(card->addresses));
    }
    memcpy(card->addresses, addresses, strlen(addresses));
    return TCK_OK;
}

/* One socket for IPv6 and IPv4, or, where the kernel has no IPv6, for IPv4. */
static int open_listener(int backlog)
{
    const struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    const struct sockaddr_in any4 = {.sin_family = AF_INET};
    const int off = 0;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0 &&
        bind(fd, (const struct sockaddr *)&any6, sizeof(any6)) == 0 && listen(fd, backlog) == 0) {
        return fd;
    }
    if (fd >= 0) {
        close(fd);
    }
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && (bind(fd, (const struct sockaddr *)&any4, sizeof(any4)) != 0 || listen(fd, backlog) != 0)) {
        int why = errno;

        close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

tck_status_t bootstrap_listen(const char *addresses, int backlog, int *fd_out, struct bootstrap_card *card,
                              struct error *err)
{
    struct sockaddr_in6 at = {.sin6_port = 0};
    socklen_t len = sizeof(at);
    tck_status_t status = fill_addresses(addresses, card, err);
    int fd;

    if (status == TCK_OK && random_bytes(card->ticket, sizeof(card->ticket)) != TCK_OK) {
        status = error_set(err, TCK_ERR_IO, "no random numbers for the ticket");
    }
    if (status != TCK_OK) {
        return status;
    }
    fd = open_listener(backlog);
    if (fd < 0) {
        return error_set(err, TCK_ERR_IO, "cannot listen for other ranks: %m");
    }
    if (getsockname(fd, (struct sockaddr *)&at, &len) != 0) {
        close(fd);
        return error_set(err, TCK_ERR_IO, "cannot read the own port: %m");
    }
    card->port = ntohs(at.sin6_port); /* at the same place in both families */
    *fd_out = fd;
    return TCK_OK;
}

/* ---- accept -------------------------------------------------------------------------------------------------- */

/* 0 if it is over. */
static int left_ms(uint64_t until_ms)
{
    uint64_t now = clock_ms();

    return until_ms <= now ? 0 : until_ms - now > INT32_MAX ? INT32_MAX : (int)(until_ms - now);
}

/* False: the caller has no ticket, says nothing, or has given up in the meantime: it confirms that it got the answer.
 */
static bool greet_caller(int fd, const struct bootstrap_card *card, uint32_t *rank_out)
{
    struct greeting greeting;
    char confirmed;

    if (set_timeout(fd, GREETING_MS, NULL) != TCK_OK ||
        bootstrap_receive(fd, &greeting, sizeof(greeting), NULL) != TCK_OK ||
        memcmp(greeting.ticket, card->ticket, HALF) != 0 ||
        bootstrap_send(fd, card->ticket + HALF, HALF, NULL) != TCK_OK ||
        bootstrap_receive(fd, &confirmed, 1, NULL) != TCK_OK) {
        return false;
    }
    *rank_out = ntohl(greeting.rank);
    return true;
}

tck_status_t bootstrap_accept(int listen_fd, const struct bootstrap_card *card, uint64_t until_ms, uint32_t *rank_out,
                              int *fd_out, struct error *err)
{
    for (;;) {
        struct pollfd wait = {.fd = listen_fd, .events = POLLIN};
        int fd = -1, n = poll(&wait, 1, left_ms(until_ms));

        if (n == 0) {
            return error_set(err, TCK_ERR_TIMEDOUT, "it did not connect");
        }
        if (n > 0) {
            fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        }
        if (fd >= 0 && greet_caller(fd, card, rank_out)) {
            *fd_out = fd;
            return TCK_OK;
        }
        if (fd >= 0) {
            close(fd);
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return error_set(err, TCK_ERR_IO, "cannot accept a connection: %m");
        }
    }
}

/* ---- connect ------------------------------------------------------------------------------------------------- */

static tck_status_t greet_listener(int fd, const struct bootstrap_card *card, uint32_t rank, struct error *err)
{
    struct greeting greeting = {.rank = htonl(rank)};
    uint8_t answer[HALF];
    tck_status_t status;

    memcpy(greeting.ticket, card->ticket, HALF);
    status = set_timeout(fd, ANSWER_MS, err);
    if (status == TCK_OK) {
        status = bootstrap_send(fd, &greeting, sizeof(greeting), err);
    }
    if (status == TCK_OK) {
        status = bootstrap_receive(fd, answer, sizeof(answer), err);
    }
    if (status == TCK_OK && memcmp(answer, card->ticket + HALF, HALF) != 0) {
        status = error_set(err, TCK_ERR_PROTO, "another program listens there");
    }
    return status == TCK_OK ? bootstrap_send(fd, "", 1, err) : status;
}

static tck_status_t connect_to(const char *address, const struct bootstrap_card *card, uint32_t rank, int *fd_out,
                               struct error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char port[8];
    tck_status_t status;
    int fd;

    snprintf(port, sizeof(port), "%u", card->port);
    if (getaddrinfo(address, port, &hints, &found) != 0) {
        return error_set(err, TCK_ERR_INVAL, "%s is not a numeric address", address);
    }
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    status =
        fd < 0 ? error_set(err, TCK_ERR_IO, "%s port %s: %m", address, port) : set_timeout(fd, ONE_ADDRESS_MS, err);
    if (status == TCK_OK && connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
        errno = errno == EINPROGRESS ? ETIMEDOUT : errno;
        status = error_set(err, TCK_ERR_UNREACHABLE, "%s port %s: %m", address, port);
    } else if (status == TCK_OK) {
        status = greet_listener(fd, card, rank, err);
        if (status != TCK_OK) {
            status = error_prefix(err, "%s port %s", address, port);
        }
    }
    freeaddrinfo(found);
    if (status != TCK_OK && fd >= 0) {
        close(fd);
    } else {
        *fd_out = fd;
    }
    return status;
}

tck_status_t bootstrap_connect(const struct bootstrap_card *card, uint32_t rank, int *fd_out, struct error *err)
{
    char list[CARD_ADDRESSES], *rest = list;
    struct error other = {.code = TCK_OK};
    struct error *of_this = err;
    tck_status_t status = TCK_ERR_INVAL;

    memcpy(list, card->addresses, sizeof(list));
    list[sizeof(list) - 1] = '\0';
    for (const char *one = strsep(&rest, ","); one != NULL && status != TCK_OK; one = strsep(&rest, ",")) {
        status = connect_to(one, card, rank, fd_out, of_this);
        of_this = &other;
    }
    return status == TCK_OK ? TCK_OK : error_prefix(err, "none of its addresses (%s) answers", card->addresses);
}
