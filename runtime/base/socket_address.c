/* SPDX-License-Identifier: Apache-2.0
 * Parsing, printing and comparing addresses. */
#include "base/socket_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ip_parse(const char *text, struct ip *out)
{
    struct ip ip = {.family = AF_INET};

    if (inet_pton(AF_INET, text, ip.bytes) != 1) {
        ip = (struct ip){.family = AF_INET6};
        if (inet_pton(AF_INET6, text, ip.bytes) != 1) {
            return false;
        }
    }
    *out = ip;
    return true;
}

struct ip ip_of(const struct sockaddr *address)
{
    struct ip ip = {.family = address->sa_family};

    if (address->sa_family == AF_INET) {
        memcpy(ip.bytes, (const char *)address + offsetof(struct sockaddr_in, sin_addr), sizeof(struct in_addr));
    } else if (address->sa_family == AF_INET6) {
        memcpy(ip.bytes, (const char *)address + offsetof(struct sockaddr_in6, sin6_addr), sizeof(struct in6_addr));
    } else {
        ip.family = AF_UNSPEC;
    }
    return ip;
}

bool ip_is_none(const struct ip *ip)
{
    return ip->family == AF_UNSPEC;
}

bool ip_is(const struct ip *a, const struct ip *b)
{
    return a->family == b->family && memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

bool ip_is_link_local(const struct ip *ip)
{
    return ip->family == AF_INET6 && ip->bytes[0] == 0xfe && (ip->bytes[1] & 0xc0) == 0x80;
}

bool ip_is_mapped(const struct ip *ip)
{
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

    return ip->family == AF_INET6 && memcmp(ip->bytes, prefix, sizeof(prefix)) == 0;
}

bool ip_in_network(const struct ip *a, const struct ip *b, const struct ip *mask)
{
    bool same = a->family == b->family && a->family == mask->family && !ip_is_none(mask);

    for (size_t i = 0; i < sizeof(a->bytes) && same; i++) {
        same = ((a->bytes[i] ^ b->bytes[i]) & mask->bytes[i]) == 0;
    }
    return same;
}

struct socket_address socket_address_of(const struct ip *ip, uint16_t port)
{
    struct socket_address address = {.len = 0};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

    if (ip->family == AF_INET6) {
        memcpy(&v6.sin6_addr, ip->bytes, sizeof(v6.sin6_addr));
        memcpy(&address.socket, &v6, sizeof(v6));
        address.len = sizeof(v6);
    } else {
        memcpy(&v4.sin_addr, ip->bytes, sizeof(v4.sin_addr));
        memcpy(&address.socket, &v4, sizeof(v4));
        address.len = sizeof(v4);
    }
    return address;
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

bool socket_address_parse(const char *text, struct socket_address *out)
{
    const char *colon = strrchr(text, ':');
    bool bracketed = text[0] == '[' && colon != NULL && colon > text && colon[-1] == ']';
    const char *begin = text + bracketed, *end = bracketed ? colon - 1 : colon;
    char host[INET6_ADDRSTRLEN];
    struct ip ip;
    uint16_t port;

    if (colon == NULL || (size_t)(end - begin) >= sizeof(host) || !parse_port(colon + 1, &port)) {
        return false;
    }
    snprintf(host, sizeof(host), "%.*s", (int)(end - begin), begin);
    if (!ip_parse(host, &ip) || bracketed != (ip.family == AF_INET6)) {
        return false;
    }
    *out = socket_address_of(&ip, port);
    return true;
}

uint16_t socket_address_port(const struct sockaddr *address)
{
    in_port_t port = 0;

    if (address->sa_family == AF_INET) {
        memcpy(&port, (const char *)address + offsetof(struct sockaddr_in, sin_port), sizeof(port));
    } else if (address->sa_family == AF_INET6) {
        memcpy(&port, (const char *)address + offsetof(struct sockaddr_in6, sin6_port), sizeof(port));
    }
    return ntohs(port);
}

void socket_address_print(const struct sockaddr *address, char out[SOCKET_ADDRESS_TEXT])
{
    struct ip ip = ip_of(address);
    char host[INET6_ADDRSTRLEN] = "?";

    if (!ip_is_none(&ip)) {
        (void)inet_ntop(ip.family, ip.bytes, host, sizeof(host));
    }
    snprintf(out, SOCKET_ADDRESS_TEXT, ip.family == AF_INET6 ? "[%s]:%u" : "%s:%u", host, socket_address_port(address));
}
