/* SPDX-License-Identifier: Apache-2.0
 * Lists of addresses as text. */
#include "base/address_list.h"

#include <stdio.h>
#include <string.h>

#define TEXT_MAX (ADDRESSES_MAX * ADDRESS_ITEM)

static bool has(const struct address_list *list, const char *item)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->of[i], item) == 0) {
            return true;
        }
    }
    return false;
}

static tck_status_t add(struct address_list *list, const char *item, struct error *err)
{
    size_t len = strlen(item);

    if (len == 0 || len >= ADDRESS_ITEM || strpbrk(item, " \t\n") != NULL) {
        return error_set(err, TCK_ERR_INVAL, "\"%.64s\" is not one of a list: separate them by commas, without spaces",
                         item);
    }
    if (has(list, item)) {
        return error_set(err, TCK_ERR_INVAL, "%s is in the list twice", item);
    }
    if (list->count == ADDRESSES_MAX) {
        return error_set(err, TCK_ERR_INVAL, "there are more than %d in the list", ADDRESSES_MAX);
    }
    memcpy(list->of[list->count++], item, len + 1);
    return TCK_OK;
}

tck_status_t address_list_read(const char *text, struct address_list *out, struct error *err)
{
    struct address_list list = {.count = 0};
    char copy[TEXT_MAX], *rest = copy;
    const char *item;

    if (strlen(text) >= sizeof(copy)) {
        return error_set(err, TCK_ERR_INVAL, "a list of addresses is longer than %zu bytes", sizeof(copy) - 1);
    }
    snprintf(copy, sizeof(copy), "%s", text);
    while (text[0] != '\0' && (item = strsep(&rest, ",")) != NULL) {
        tck_status_t status = add(&list, item, err);
        if (status != TCK_OK) {
            return status;
        }
    }
    *out = list;
    return TCK_OK;
}

bool address_list_add(char *text, size_t cap, const char *item)
{
    size_t used = strlen(text);
    int len = snprintf(text + used, cap - used, "%s%s", used > 0 ? "," : "", item);

    if (len < 0 || (size_t)len >= cap - used) {
        text[used] = '\0';
        return false;
    }
    return true;
}

/* An IPv6 address in front of a port is in brackets, since it has colons itself. */
static size_t host_len(const char *item)
{
    return item[0] == '[' ? strcspn(item, "]") : strcspn(item, ":");
}

size_t address_list_host(const struct address_list *list, const char *host)
{
    size_t len = host_len(host), i = 0;

    while (i < list->count && (host_len(list->of[i]) != len || strncmp(list->of[i], host, len) != 0)) {
        i++;
    }
    return i;
}
