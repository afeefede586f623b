/* SPDX-License-Identifier: Apache-2.0
 * IPv4 addresses of a link: "10.0.0.1:40123" to and from socket addresses, which addresses and network interfaces an
 * agent uses when the configuration leaves one or both open, and from which of them it connects to another agent. */
#ifndef TCK_TIERS_LINK_ADDRESS_H
#define TCK_TIERS_LINK_ADDRESS_H

#include "base/address_list.h"
#include "base/world.h"
#include <net/if.h>
#include <netinet/in.h>

struct link_place {
    char device[IFNAMSIZ]; /* "" if no interface has the address */
    bool has_carrier;
    struct in_addr address, mask; /* mask 0: not known */
};

struct link_places {
    size_t count;
    struct link_place of[ADDRESSES_MAX];
};

/* device and address as configured, "" for none. An address alone finds its interface, an interface alone its first
 * IPv4 address; neither: the first interface that is up and not a loopback, else the loopback. */
must_check tck_status_t link_place_find(const char *device, const char *address, struct link_place *out,
                                        struct error *err);

/* The same for lists (address_list.h), in their order. Of several, one that cannot be used now is left out with a
 * warning, as long as another one is left: its interface is missing, or has no carrier. */
must_check tck_status_t link_places_find(const char *devices, const char *addresses, struct link_places *out,
                                         struct error *err);
/* The place from which to connect to this address, the i-th one of another agent: the one in the same network, else the
 * one with the same number. */
size_t link_places_toward(const struct link_places *places, struct in_addr remote, size_t i);

/* "a.b.c.d:port", port not 0. IPv6 is TCK_ERR_UNSUPPORTED. */
must_check tck_status_t link_address_parse(const char *text, struct sockaddr_in *out, struct error *err);
void link_address_print(const struct sockaddr_in *address, char out[ADDRESS_TEXT]);

#endif
