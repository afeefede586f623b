/* SPDX-License-Identifier: Apache-2.0
 * Parsing, printing and choosing the addresses of a link. */
#include "tiers/link_address.h"

#include "base/log.h"

#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <string.h>

static tck_status_t parse_ip(const char *text, struct ip *out, struct error *err)
{
    if (ip_parse(text, out)) {
        return TCK_OK;
    }
    return error_set(err, TCK_ERR_INVAL, "address %s is neither an IPv4 nor an IPv6 address", text);
}

tck_status_t link_address_parse(const char *text, struct socket_address *out, struct error *err)
{
    struct socket_address address;

    if (!socket_address_parse(text, &address) || socket_address_port((struct sockaddr *)&address.socket) == 0) {
        return error_set(
            err, TCK_ERR_INVAL,
            "address %.64s is not of the form 10.0.0.1:40123 or [fd00::1]:40123, with a port from 1 to 65535", text);
    }
    *out = address;
    return TCK_OK;
}

/* The name without an alias's suffix ("eth0:1"): UCX knows interfaces only. */
static void copy_device(char out[IFNAMSIZ], const char *name)
{
    snprintf(out, IFNAMSIZ, "%.*s", (int)strcspn(name, ":"), name);
}

/* fe80::/10: such an address has to be used with the name of an interface, which differs between machines. */
static bool is_link_local(const struct ip *address)
{
    return address->family == AF_INET6 && address->bytes[0] == 0xfe && (address->bytes[1] & 0xc0) == 0x80;
}

struct wish {
    const char *device; /* NULL: any but a loopback */
    const struct ip *address;
};

static bool fits(const struct ifaddrs *entry, const struct wish *wish, const struct ip *address)
{
    char device[IFNAMSIZ];

    if (wish->address != NULL) {
        return ip_is(wish->address, address);
    }
    if (wish->device == NULL) {
        return (entry->ifa_flags & IFF_LOOPBACK) == 0;
    }
    copy_device(device, entry->ifa_name);
    return strcmp(device, wish->device) == 0;
}

static bool find_entry_of(const struct ifaddrs *list, const struct wish *wish, sa_family_t family,
                          struct link_place *out)
{
    for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
        struct ip address;

        if (entry->ifa_addr == NULL || entry->ifa_addr->sa_family != family || (entry->ifa_flags & IFF_UP) == 0) {
            continue;
        }
        address = ip_of(entry->ifa_addr);
        if (!is_link_local(&address) && fits(entry, wish, &address)) {
            copy_device(out->device, entry->ifa_name);
            out->has_carrier = (entry->ifa_flags & IFF_RUNNING) != 0;
            out->address = address;
            out->mask = entry->ifa_netmask != NULL ? ip_of(entry->ifa_netmask) : (struct ip){0};
            return true;
        }
    }
    return false;
}

static bool find_entry(const struct ifaddrs *list, const struct wish *wish, struct link_place *out)
{
    return find_entry_of(list, wish, AF_INET, out) || find_entry_of(list, wish, AF_INET6, out);
}

static tck_status_t find_by_address(const struct ifaddrs *list, const char *device, const char *address,
                                    struct link_place *out, struct error *err)
{
    struct ip wanted;
    tck_status_t status = parse_ip(address, &wanted, err);

    if (status != TCK_OK) {
        return status;
    }
    if (is_link_local(&wanted)) {
        return error_set(err, TCK_ERR_INVAL,
                         "address %s is valid only within its own network segment: give one that is valid beyond it",
                         address);
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
    return error_set(err, TCK_ERR_NOENT, "network interface %s is not up or has no address", device);
}

static void find_any(const struct ifaddrs *list, struct link_place *out)
{
    if (!find_entry(list, &(struct wish){0}, out)) {
        snprintf(out->device, sizeof(out->device), "lo");
        (void)ip_parse("127.0.0.1", &out->address);
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

static tck_status_t check_family(const struct link_places *places, struct error *err)
{
    for (size_t i = 1; i < places->count; i++) {
        if (places->of[i].address.family != places->of[0].address.family) {
            return error_set(err, TCK_ERR_CONFIG,
                             "one address of this agent is IPv4 and another one IPv6: set net_address to addresses of "
                             "one family");
        }
    }
    return TCK_OK;
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
        status = find_several(&device_list, &address_list, count, out, err);
        return status == TCK_OK ? check_family(out, err) : status;
    }
    out->count = 1;
    return link_place_find(devices, addresses, &out->of[0], err);
}

bool link_places_are_ipv6(const char *devices, const char *addresses)
{
    struct address_list device_list, address_list;
    struct link_place place = {.device = ""};
    size_t count;

    if (address_list_read(devices, &device_list, NULL) != TCK_OK ||
        address_list_read(addresses, &address_list, NULL) != TCK_OK) {
        return false; /* config_load refuses them */
    }
    count = device_list.count > address_list.count ? device_list.count : address_list.count;
    for (size_t i = 0; i < count || i == 0; i++) {
        if (link_place_find(item(&device_list, i), item(&address_list, i), &place, NULL) == TCK_OK) {
            break;
        }
    }
    return place.address.family == AF_INET6;
}

size_t link_places_toward(const struct link_places *places, const struct ip *remote, size_t i)
{
    for (size_t k = 0; k < places->count; k++) {
        const struct link_place *place = &places->of[k];

        if (ip_in_network(&place->address, remote, &place->mask)) {
            return k;
        }
    }
    return i < places->count ? i : places->count - 1;
}
