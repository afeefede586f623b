/* SPDX-License-Identifier: Apache-2.0
 * TCP connections between two ranks: a listening socket with a ticket that callers must show, and bytes that arrive
 * completely or not at all. Blocking, with a time limit for each wait. */
#ifndef TCK_CLIENT_BOOTSTRAP_SOCKET_H
#define TCK_CLIENT_BOOTSTRAP_SOCKET_H

#include "base/status.h"

#include <stdbool.h>

#define TICKET_BYTES   32 /* the first half is what the caller shows, the second one what the listener answers */
#define CARD_ADDRESSES 512

/* How to reach a rank. */
struct bootstrap_card {
    uint8_t ticket[TICKET_BYTES];
    uint16_t port;
    char addresses[CARD_ADDRESSES]; /* numeric, separated by commas */
};

/* Listens on all interfaces and fills in the card. addresses: the ones to write into it, NULL: those of all interfaces
 * that are up. */
must_check tck_status_t bootstrap_listen(const char *addresses, int backlog, int *fd_out, struct bootstrap_card *card,
                                         struct error *err);
/* Accepts one connection of a rank that has the card; others are turned away. Fails at until_ms (clock_ms). */
must_check tck_status_t bootstrap_accept(int listen_fd, const struct bootstrap_card *card, uint64_t until_ms,
                                         uint32_t *rank_out, int *fd_out, struct error *err);
/* Connects to the rank that has the card, at the first of its addresses that answers as it should. The error is that of
 * the first address, which is the likeliest to be right. */
must_check tck_status_t bootstrap_connect(const struct bootstrap_card *card, uint32_t rank, int *fd_out,
                                          struct error *err);

/* From now on each wait for the other side takes at most so long, and a machine that is gone is noticed. */
must_check tck_status_t bootstrap_settle(int fd, int timeout_ms, struct error *err);
/* The other side has closed it. */
bool bootstrap_is_closed(int fd);
must_check tck_status_t bootstrap_send(int fd, const void *data, size_t len, struct error *err);
must_check tck_status_t bootstrap_receive(int fd, void *data, size_t len, struct error *err);

#endif
