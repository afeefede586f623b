/* SPDX-License-Identifier: Apache-2.0
 * The descriptors that the agent has stored or wants to store, by name. A search tree beside a list, since a node may
 * have tens of thousands and each is looked up several times. Not thread-safe. */
#ifndef TCK_AGENT_FD_LIST_H
#define TCK_AGENT_FD_LIST_H

#include "base/status.h"
#include "tiers/sd_notify.h"

#include <stdint.h>

struct fd_item {
    char name[PARK_NAME_MAX]; /* the first member: the tree compares items as names */
    int fd;                   /* borrowed; -1: to be removed from the store */
    bool sent;                /* the store has it in its current state */
    struct fd_item *next, *prev;
};

/* All zero: empty. */
struct fd_list {
    struct fd_item *first;
    void *by_name;
    uint32_t count, sent;
    size_t name_bytes; /* with a separator for each */
};

/* NULL if there is none of that name. */
struct fd_item *fd_list_find(const struct fd_list *list, const char *name);
/* Adds an item that is not sent yet, or gives the one of that name another descriptor. The descriptor stays the
 * caller's, who keeps it open until the item is removed. */
must_check tck_status_t fd_list_put(struct fd_list *list, const char *name, int fd, struct error *err);
void fd_list_set_sent(struct fd_list *list, struct fd_item *item, bool sent);
void fd_list_remove(struct fd_list *list, struct fd_item *item);
void fd_list_free(struct fd_list *list);

#endif
