/* SPDX-License-Identifier: Apache-2.0
 * IPv4 and IPv6 addresses, alone and with a port, as numbers: no name server is asked. */
#ifndef TCK_BASE_SOCKET_ADDRESS_H
#define TCK_BASE_SOCKET_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define SOCKET_ADDRESS_TEXT 64 /* bytes of one as text, its NUL included */

/* In network order; of IPv4 the first four bytes, and the others are 0. All zero: none. */
struct ip {
    sa_family_t family; /* AF_INET, AF_INET6; AF_UNSPEC: none */
    uint8_t bytes[16];
};

/* "10.0.0.1", "fd00::1". False: it is neither. */
bool ip_parse(const char *text, struct ip *out);
/* The address in a socket address; none if it is neither IPv4 nor IPv6. */
struct ip ip_of(const struct sockaddr *address);
bool ip_is_none(const struct ip *ip);
bool ip_is(const struct ip *a, const struct ip *b);
/* fe80::/10: such an address has to be used with the name of an interface, which differs between machines. */
bool ip_is_link_local(const struct ip *ip);
/* ::ffff:10.0.0.1, an IPv4 address written as IPv6. */
bool ip_is_mapped(const struct ip *ip);
/* Whether both are in the network with this mask; false if the mask is none. */
bool ip_in_network(const struct ip *a, const struct ip *b, const struct ip *mask);

struct socket_address {
    struct sockaddr_storage socket;
    socklen_t len;
};

struct socket_address socket_address_of(const struct ip *ip, uint16_t port);
/* "10.0.0.1:40123", "[fd00::1]:40123"; port 0 to 65535. False: it is neither. */
bool socket_address_parse(const char *text, struct socket_address *out);
void socket_address_print(const struct sockaddr *address, char out[SOCKET_ADDRESS_TEXT]);
uint16_t socket_address_port(const struct sockaddr *address);

#endif
