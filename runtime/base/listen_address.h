/* SPDX-License-Identifier: Apache-2.0
 * Where a server listens, as users write it: HOST:PORT. The host is a number, so that no name server is asked. */
#ifndef TCK_BASE_LISTEN_ADDRESS_H
#define TCK_BASE_LISTEN_ADDRESS_H

#include "base/socket_address.h"
#include "base/status.h"

/* "127.0.0.1:9464", "[::1]:9464", or ":9464" and "localhost:9464" for the loopback interface. Port 0: any free one.
 * TCK_ERR_CONFIG, with an example, for anything else. */
must_check tck_status_t listen_address_parse(const char *text, struct socket_address *out, struct error *err);

/* Opens a socket there that listens and does not block; *at_out is its address with the port that it has. */
must_check tck_status_t listen_address_open(const struct socket_address *address, int backlog, int *fd_out,
                                            char at_out[SOCKET_ADDRESS_TEXT], struct error *err);

#endif
