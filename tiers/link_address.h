/* SPDX-License-Identifier: Apache-2.0
 * IPv4 addresses of a link: "10.0.0.1:40123" to and from socket addresses, and which address and network interface an
 * agent uses when the configuration leaves one or both open. */
#ifndef TCK_TIERS_LINK_ADDRESS_H
#define TCK_TIERS_LINK_ADDRESS_H

#include "base/world.h"
#include <net/if.h>
#include <netinet/in.h>

struct link_place {
    char device[IFNAMSIZ]; /* "" if no interface has the address */
    struct in_addr address;
};

/* device and address as configured, "" for none. An address alone finds its interface, an interface alone its first
 * IPv4 address; neither: the first interface that is up and not a loopback, else the loopback. */
must_check tck_status_t link_place_find(const char *device, const char *address, struct link_place *out,
                                        struct error *err);

/* "a.b.c.d:port", port not 0. IPv6 is TCK_ERR_UNSUPPORTED. */
must_check tck_status_t link_address_parse(const char *text, struct sockaddr_in *out, struct error *err);
void link_address_print(const struct sockaddr_in *address, char out[ADDRESS_TEXT]);

#endif
