/* SPDX-License-Identifier: Apache-2.0
 * The sockets that this process has open, also those of libraries. */
#ifndef TCK_TIERS_SOCKETS_H
#define TCK_TIERS_SOCKETS_H

#include <stdbool.h>
#include <stdint.h>

/* Calls it for each open descriptor; another thread may close or replace the descriptor at any time. False: they cannot
 * be listed; errno says why. */
bool descriptors_each(void (*call)(void *ctx, int fd), void *ctx);
/* An integer option of SOL_SOCKET; 0 if there is none. */
int socket_option(int fd, int name);
/* Gives the TCP sockets that are chosen this value of IP_TOS, or of IPV6_TCLASS. A connection that is accepted inherits
 * it from its listener. False if one of them refuses it or the sockets cannot be listed; errno says why. */
typedef bool socket_chosen_fn(const void *ctx, int fd);
bool sockets_mark(uint8_t tos, socket_chosen_fn *chosen, const void *ctx);

#endif
