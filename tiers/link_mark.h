/* SPDX-License-Identifier: Apache-2.0
 * Gives the TCP sockets of a link its class (IP_TOS, IPV6_TCLASS). UCX has no setting for it and no call that returns
 * its sockets.
 *
 * Marked are the listening sockets that UCX has opened for the link, from which what they accept inherits the class,
 * and connections to the addresses of the link's peers. All other sockets of this process stay as they are, among them
 * those of object storage, unless its server has the address of a peer. */
#ifndef TCK_TIERS_LINK_MARK_H
#define TCK_TIERS_LINK_MARK_H

#include "tiers/link_conn.h"

/* Does nothing if the link has no class. link->listeners must be known. */
must_check tck_status_t link_mark_begin(struct link *link, struct error *err);
/* A connection is being made, so that there are sockets to be marked soon. */
void link_mark_soon(struct link *link);
void link_mark_end(struct link *link);

#endif
