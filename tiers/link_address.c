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
        if (!ip_is_link_local(&address) && fits(entry, wish, &address)) {
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
    if (ip_is_link_local(&wanted) || ip_is_mapped(&wanted)) {
        return error_set(err, TCK_ERR_INVAL, "address %s is %s: give one that other nodes can connect to", address,
                         ip_is_mapped(&wanted) ? "an IPv4 address written as IPv6" : "link-local");
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
    return error_set(err, TCK_ERR_NOENT, "network interface %s is not up, or has no address but link-local ones",
                     device);
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

struct search {
    struct address_list devices, addresses;
    size_t count;
    bool quiet; /* nothing is logged about what is left out */
};

static tck_status_t search_begin(const char *devices, const char *addresses, bool quiet, struct search *out,
                                 struct error *err)
{
    tck_status_t status = address_list_read(devices, &out->devices, err);

    if (status == TCK_OK) {
        status = address_list_read(addresses, &out->addresses, err);
    }
    if (status == TCK_OK) {
        out->count = out->devices.count > out->addresses.count ? out->devices.count : out->addresses.count;
        out->quiet = quiet;
    }
    return status;
}

static void leave_out(const struct search *search, const char *why)
{
    if (!search->quiet) {
        log_warn("%s: this agent does without it until it is started again", why);
    }
}

static tck_status_t find_several(const struct search *search, struct link_places *out, struct error *err)
{
    tck_status_t status = TCK_OK;

    out->count = 0;
    for (size_t i = 0; i < search->count; i++) {
        struct error why;
        tck_status_t found =
            find_usable(item(&search->devices, i), item(&search->addresses, i), &out->of[out->count], &why);
        if (found == TCK_OK) {
            out->count++;
            continue;
        }
        leave_out(search, why.text);
        status = status == TCK_OK ? error_set(err, found, "%s", why.text) : status;
    }
    return out->count > 0 ? TCK_OK : status;
}

static sa_family_t family_of(const struct link_places *places)
{
    sa_family_t family = AF_INET6;

    for (size_t i = 0; i < places->count; i++) {
        family = places->of[i].address.family == AF_INET ? AF_INET : family;
    }
    return family;
}

/* An interface that has only IPv6 is of no use where others have IPv4. */
static tck_status_t keep_one_family(const struct search *search, struct link_places *places, struct error *err)
{
    sa_family_t family = family_of(places);
    size_t kept = 0;

    for (size_t i = 0; i < places->count; i++) {
        if (places->of[i].address.family == family) {
            places->of[kept++] = places->of[i];
        } else if (search->addresses.count > 0) {
            return error_set(err, TCK_ERR_CONFIG,
                             "net_address has IPv4 and IPv6 addresses: give addresses of one family");
        } else {
            char why[64 + IFNAMSIZ];
            snprintf(why, sizeof(why), "network interface %s has no IPv4 address", places->of[i].device);
            leave_out(search, why);
        }
    }
    places->count = kept;
    return TCK_OK;
}

static tck_status_t find_all(const char *devices, const char *addresses, bool quiet, struct link_places *out,
                             struct error *err)
{
    struct search search;
    tck_status_t status = search_begin(devices, addresses, quiet, &search, err);

    if (status == TCK_OK && search.count <= 1) {
        out->count = 1;
        return link_place_find(devices, addresses, &out->of[0], err);
    }
    if (status == TCK_OK) {
        status = find_several(&search, out, err);
    }
    return status == TCK_OK ? keep_one_family(&search, out, err) : status;
}

tck_status_t link_places_find(const char *devices, const char *addresses, struct link_places *out, struct error *err)
{
    return find_all(devices, addresses, false, out, err);
}

bool link_places_are_ipv6(const char *devices, const char *addresses)
{
    struct link_places places;

    return find_all(devices, addresses, true, &places, NULL) == TCK_OK && places.of[0].address.family == AF_INET6;
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
