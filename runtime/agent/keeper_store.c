/* SPDX-License-Identifier: Apache-2.0
 * A plain array: some dozens of entries, looked up a few times in their life. */
#include "agent/keeper_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_FD        3
#define NAMES_BYTES_MAX (100u << 10) /* Linux allows 128 KiB for one string of the environment */

static struct store_entry *find(const struct store *store, const char *name)
{
    for (int i = 0; i < store->count; i++) {
        if (strcmp(store->entries[i].name, name) == 0) {
            return &store->entries[i];
        }
    }
    return NULL;
}

static size_t names_bytes(const struct store *store)
{
    size_t bytes = 1;
    for (int i = 0; i < store->count; i++) {
        bytes += strlen(store->entries[i].name) + 1;
    }
    return bytes;
}

static tck_status_t grow(struct store *store, struct error *err)
{
    if (names_bytes(store) + PARK_NAME_MAX > NAMES_BYTES_MAX) {
        return error_set(err, TCK_ERR_NOSPC, "%d descriptors are as many as can be handed on", store->count);
    }
    if (store->count < store->cap) {
        return TCK_OK;
    }
    int cap = store->cap == 0 ? 16 : store->cap * 2;
    struct store_entry *entries = realloc(store->entries, (size_t)cap * sizeof(*entries));
    if (entries == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for %d descriptors", cap);
    }
    store->entries = entries;
    store->cap = cap;
    return TCK_OK;
}

tck_status_t store_put(struct store *store, const char *name, int fd, struct error *err)
{
    struct store_entry *old = find(store, name);
    if (old != NULL) {
        close(old->fd);
        old->fd = fd;
        return TCK_OK;
    }
    tck_status_t status = grow(store, err);
    if (status != TCK_OK) {
        close(fd);
        return status;
    }
    struct store_entry *entry = &store->entries[store->count++];
    snprintf(entry->name, sizeof(entry->name), "%s", name);
    entry->fd = fd;
    return TCK_OK;
}

bool store_remove(struct store *store, const char *name)
{
    struct store_entry *entry = find(store, name);
    if (entry == NULL) {
        return false;
    }
    close(entry->fd);
    *entry = store->entries[--store->count];
    return true;
}

void store_free(struct store *store)
{
    for (int i = 0; i < store->count; i++) {
        close(store->entries[i].fd);
    }
    free(store->entries);
    *store = (struct store){0};
}

/* ---- hand on ------------------------------------------------------------------------------------------------- */

/* First all out of the way of the places 3 and on, then each into its place, where it stays open over the exec. */
static bool move_all(struct store *store)
{
    for (int i = 0; i < store->count; i++) {
        int out_of_the_way = fcntl(store->entries[i].fd, F_DUPFD_CLOEXEC, FIRST_FD + store->count);
        if (out_of_the_way < 0) {
            return false;
        }
        store->entries[i].fd = out_of_the_way;
    }
    for (int i = 0; i < store->count; i++) {
        if (dup2(store->entries[i].fd, FIRST_FD + i) < 0) {
            return false;
        }
    }
    return true;
}

static bool set_variable(const char *name, const char *value)
{
    return setenv(name, value, 1) == 0; /* NOLINT(concurrency-mt-unsafe): the keeper has one thread */
}

static bool describe_all(const struct store *store)
{
    char pid[16], count[16];
    char *names = calloc(1, names_bytes(store));
    if (names == NULL) {
        return false;
    }
    char *end = names;
    for (int i = 0; i < store->count; i++) {
        end += sprintf(end, "%s%s", i == 0 ? "" : ":", store->entries[i].name);
    }
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    snprintf(count, sizeof(count), "%d", store->count);
    bool set =
        set_variable("LISTEN_PID", pid) && set_variable("LISTEN_FDS", count) && set_variable("LISTEN_FDNAMES", names);
    free(names);
    return set;
}

tck_status_t store_hand_on(struct store *store, struct error *err)
{
    if (!move_all(store) || !describe_all(store)) {
        return error_set(err, status_of_errno(errno), "hand on %d descriptors: %m", store->count);
    }
    return TCK_OK;
}
