/* SPDX-License-Identifier: Apache-2.0
 * Parsing, printing and choosing the addresses of a link. */
#include "tiers/link_address.h"

#include "base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tck_status_t parse_ipv4(const char *text, struct in_addr *out, struct error *err)
{
    struct in6_addr ignored;

    if (inet_pton(AF_INET, text, out) == 1) {
        return TCK_OK;
    }
    if (text[0] == '[' || inet_pton(AF_INET6, text, &ignored) == 1) {
        return error_set(err, TCK_ERR_UNSUPPORTED, "address %s: IPv6 is not supported, give an IPv4 address", text);
    }
    return error_set(err, TCK_ERR_INVAL, "address %s is not an IPv4 address", text);
}

tck_status_t link_address_parse(const char *text, struct sockaddr_in *out, struct error *err)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    char host[ADDRESS_TEXT];
    const char *colon = strrchr(text, ':');
    char *end;
    unsigned long port;
    tck_status_t status;

    if (colon == NULL || (size_t)(colon - text) >= sizeof(host)) {
        return error_set(err, TCK_ERR_INVAL, "address %.64s is not of the form 10.0.0.1:40123", text);
    }
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    status = parse_ipv4(host, &address.sin_addr, err);
    if (status != TCK_OK) {
        return status;
    }
    errno = 0;
    port = strtoul(colon + 1, &end, 10);
    if (colon[1] < '0' || colon[1] > '9' || *end != '\0' || errno != 0 || port == 0 || port > UINT16_MAX) {
        return error_set(err, TCK_ERR_INVAL, "address %.64s has no port from 1 to 65535", text);
    }
    address.sin_port = htons((uint16_t)port);
    *out = address;
    return TCK_OK;
}

void link_address_print(const struct sockaddr_in *address, char out[ADDRESS_TEXT])
{
    char host[INET_ADDRSTRLEN];

    inet_ntop(AF_INET, &address->sin_addr, host, sizeof(host));
    snprintf(out, ADDRESS_TEXT, "%s:%u", host, (unsigned)ntohs(address->sin_port));
}

/* The name without an alias's suffix ("eth0:1"): UCX knows interfaces only. */
static void copy_device(char out[IFNAMSIZ], const char *name)
{
    snprintf(out, IFNAMSIZ, "%.*s", (int)strcspn(name, ":"), name);
}

struct wish {
    const char *device; /* NULL: any but a loopback */
    const struct in_addr *address;
};

static bool fits(const struct ifaddrs *entry, const struct wish *wish, struct in_addr address)
{
    char device[IFNAMSIZ];

    if (wish->address != NULL) {
        return wish->address->s_addr == address.s_addr;
    }
    if (wish->device == NULL) {
        return (entry->ifa_flags & IFF_LOOPBACK) == 0;
    }
    copy_device(device, entry->ifa_name);
    return strcmp(device, wish->device) == 0;
}

static struct in_addr mask_of(const struct ifaddrs *entry)
{
    struct sockaddr_in mask = {0};

    if (entry->ifa_netmask != NULL) {
        memcpy(&mask, entry->ifa_netmask, sizeof(mask));
    }
    return mask.sin_addr;
}

static bool find_entry(const struct ifaddrs *list, const struct wish *wish, struct link_place *out)
{
    for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
        struct sockaddr_in address;

        if (entry->ifa_addr == NULL || entry->ifa_addr->sa_family != AF_INET || (entry->ifa_flags & IFF_UP) == 0) {
            continue;
        }
        memcpy(&address, entry->ifa_addr, sizeof(address));
        if (fits(entry, wish, address.sin_addr)) {
            copy_device(out->device, entry->ifa_name);
            out->has_carrier = (entry->ifa_flags & IFF_RUNNING) != 0;
            out->address = address.sin_addr;
            out->mask = mask_of(entry);
            return true;
        }
    }
    return false;
}

static tck_status_t find_by_address(const struct ifaddrs *list, const char *device, const char *address,
                                    struct link_place *out, struct error *err)
{
    struct in_addr wanted;
    tck_status_t status = parse_ipv4(address, &wanted, err);

    if (status != TCK_OK) {
        return status;
    }
    if (!find_entry(list, &(struct wish){.address = &wanted}, out)) {
        out->device[0] = '\0';
        out->address = wanted;
    }
    if (device[0] != '\0') {
        snprintf(out->device, sizeof(out->device), "%s", device);
    }
    return TCK_OK;
}

static tck_status_t find_by_device(const struct ifaddrs *list, const char *device, struct link_place *out,
                                   struct error *err)
{
    if (find_entry(list, &(struct wish){.device = device}, out)) {
        return TCK_OK;
    }
    return error_set(err, TCK_ERR_NOENT, "network interface %s is not up or has no IPv4 address", device);
}

static void find_any(const struct ifaddrs *list, struct link_place *out)
{
    if (!find_entry(list, &(struct wish){0}, out)) {
        snprintf(out->device, sizeof(out->device), "lo");
        out->address.s_addr = htonl(INADDR_LOOPBACK);
    }
}

tck_status_t link_place_find(const char *device, const char *address, struct link_place *out, struct error *err)
{
    struct link_place place = {.device = ""};
    struct ifaddrs *list;
    tck_status_t status = TCK_OK;

    if (getifaddrs(&list) != 0) {
        return error_set(err, status_of_errno(errno), "list the network interfaces: %m");
    }
    if (address[0] != '\0') {
        status = find_by_address(list, device, address, &place, err);
    } else if (device[0] != '\0') {
        status = find_by_device(list, device, &place, err);
    } else {
        find_any(list, &place);
    }
    freeifaddrs(list);
    if (status == TCK_OK) {
        *out = place;
    }
    return status;
}

/* ---- several places ---------------------------------------------------------------------------------------------- */

static const char *item(const struct address_list *list, size_t i)
{
    return i < list->count ? list->of[i] : "";
}

/* UCX knows only interfaces that have a carrier when it starts. */
static tck_status_t find_usable(const char *device, const char *address, struct link_place *out, struct error *err)
{
    tck_status_t status = link_place_find(device, address, out, err);

    if (status == TCK_OK && out->device[0] == '\0') {
        return error_set(err, TCK_ERR_NOENT, "no network interface has the address %s", address);
    }
    if (status == TCK_OK && !out->has_carrier) {
        return error_set(err, TCK_ERR_NOENT, "network interface %s has no carrier", out->device);
    }
    return status;
}

static tck_status_t find_several(const struct address_list *devices, const struct address_list *addresses, size_t count,
                                 struct link_places *out, struct error *err)
{
    tck_status_t status = TCK_OK;

    out->count = 0;
    for (size_t i = 0; i < count; i++) {
        struct error why;
        tck_status_t found = find_usable(item(devices, i), item(addresses, i), &out->of[out->count], &why);
        if (found == TCK_OK) {
            out->count++;
            continue;
        }
        log_warn("%s: this agent does without it until it is started again", why.text);
        status = status == TCK_OK ? error_set(err, found, "%s", why.text) : status;
    }
    return out->count > 0 ? TCK_OK : status;
}

tck_status_t link_places_find(const char *devices, const char *addresses, struct link_places *out, struct error *err)
{
    struct address_list device_list, address_list;
    tck_status_t status = address_list_read(devices, &device_list, err);
    size_t count;

    if (status == TCK_OK) {
        status = address_list_read(addresses, &address_list, err);
    }
    if (status != TCK_OK) {
        return status;
    }
    count = device_list.count > address_list.count ? device_list.count : address_list.count;
    if (count > 1) {
        return find_several(&device_list, &address_list, count, out, err);
    }
    out->count = 1;
    return link_place_find(devices, addresses, &out->of[0], err);
}

size_t link_places_toward(const struct link_places *places, struct in_addr remote, size_t i)
{
    for (size_t k = 0; k < places->count; k++) {
        const struct link_place *place = &places->of[k];
        if (place->mask.s_addr != 0 && ((place->address.s_addr ^ remote.s_addr) & place->mask.s_addr) == 0) {
            return k;
        }
    }
    return i < places->count ? i : places->count - 1;
}
