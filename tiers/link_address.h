/* SPDX-License-Identifier: Apache-2.0
 * Which addresses and network interfaces an agent uses when the configuration leaves one or both open, and from which
 * of them it connects to another agent. All addresses of an agent are of one family, since UCX 1.13 is set to one: an
 * agent that is set to IPv4 and one that is set to IPv6 abort each other when they connect. */
#ifndef TCK_TIERS_LINK_ADDRESS_H
#define TCK_TIERS_LINK_ADDRESS_H

#include "base/address_list.h"
#include "base/socket_address.h"
#include "base/world.h"
#include <net/if.h>

struct link_place {
    char device[IFNAMSIZ]; /* "" if no interface has the address */
    bool has_carrier;
    struct ip address, mask; /* mask none: not known */
};

struct link_places {
    size_t count;
    struct link_place of[ADDRESSES_MAX];
};

/* device and address as configured, "" for none. An address alone finds its interface, an interface alone its first
 * IPv4 address, or if it has none, its first IPv6 address that is not link-local; neither: the first interface that is
 * up and not a loopback, one with IPv4 if there is one, else the loopback. */
must_check tck_status_t link_place_find(const char *device, const char *address, struct link_place *out,
                                        struct error *err);

/* The same for lists (address_list.h), in their order. Of several, one that cannot be used now is left out with a
 * warning, as long as another one is left: its interface is missing, or has no carrier, or only IPv6 where another one
 * has IPv4. TCK_ERR_CONFIG: the addresses that are given are not all of one family. */
must_check tck_status_t link_places_find(const char *devices, const char *addresses, struct link_places *out,
                                         struct error *err);
/* Whether what these find is IPv6. */
bool link_places_are_ipv6(const char *devices, const char *addresses);
/* The place from which to connect to this address, the i-th one of another agent: the one in the same network, else the
 * one with the same number. */
size_t link_places_toward(const struct link_places *places, const struct ip *remote, size_t i);

/* "10.0.0.1:40123", "[fd00::1]:40123", port not 0. */
must_check tck_status_t link_address_parse(const char *text, struct socket_address *out, struct error *err);

#endif
