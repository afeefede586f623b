/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/lifecycle/fd_list.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

struct fd_item *fd_list_find(const struct fd_list *list, const char *name)
{
    struct fd_item *const *node = tfind(name, (void *const *)&list->by_name, by_name);
    return node != NULL ? *node : NULL;
}

static tck_status_t add(struct fd_list *list, const char *name, int fd, struct error *err)
{
    struct fd_item *item = calloc(1, sizeof(*item));
    if (item != NULL) {
        snprintf(item->name, sizeof(item->name), "%s", name);
    }
    if (item == NULL || tsearch(item, &list->by_name, by_name) == NULL) {
        free(item);
        return error_set(err, TCK_ERR_NOMEM, "storing %s: out of memory", name);
    }
    item->fd = fd;
    item->next = list->first;
    if (item->next != NULL) {
        item->next->prev = item;
    }
    list->first = item;
    list->count++;
    list->name_bytes += strlen(item->name) + 1;
    return TCK_OK;
}

tck_status_t fd_list_put(struct fd_list *list, const char *name, int fd, struct error *err)
{
    struct fd_item *old = fd_list_find(list, name);
    if (old == NULL) {
        return add(list, name, fd, err);
    }
    fd_list_set_sent(list, old, false);
    old->fd = fd;
    return TCK_OK;
}

void fd_list_set_sent(struct fd_list *list, struct fd_item *item, bool sent)
{
    list->sent += sent;
    list->sent -= item->sent;
    item->sent = sent;
}

void fd_list_remove(struct fd_list *list, struct fd_item *item)
{
    (void)tdelete(item, &list->by_name, by_name);
    fd_list_set_sent(list, item, false);
    if (item->prev != NULL) {
        item->prev->next = item->next;
    } else {
        list->first = item->next;
    }
    if (item->next != NULL) {
        item->next->prev = item->prev;
    }
    list->count--;
    list->name_bytes -= strlen(item->name) + 1;
    free(item);
}

void fd_list_free(struct fd_list *list)
{
    while (list->first != NULL) {
        fd_list_remove(list, list->first);
    }
}
