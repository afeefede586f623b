/* SPDX-License-Identifier: Apache-2.0
 * The addresses of one node in the order in which they are tried, as text: "10.0.0.1:40123,10.0.1.1:40123", or
 * "[fd00::1]:40123". Interfaces and addresses in the configuration are written in the same way. */
#ifndef TCK_BASE_ADDRESS_LIST_H
#define TCK_BASE_ADDRESS_LIST_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

#define ADDRESSES_MAX 4
#define ADDRESS_ITEM  64 /* bytes of one, its NUL included */

struct address_list {
    size_t count;
    char of[ADDRESSES_MAX][ADDRESS_ITEM];
};

/* An empty text has no items. TCK_ERR_INVAL: an item is empty, too long, contains a space or is there twice, or there
 * are more than ADDRESSES_MAX. */
must_check tck_status_t address_list_read(const char *text, struct address_list *out, struct error *err);
/* Appends an item to the text; false: it does not fit. */
must_check bool address_list_add(char *text, size_t cap, const char *item);
/* The first item with this host, of which the port (":40123") does not count; the list's count if there is none. */
size_t address_list_host(const struct address_list *list, const char *host);

#endif
