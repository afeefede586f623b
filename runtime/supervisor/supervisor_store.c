/* SPDX-License-Identifier: Apache-2.0
 * A plain array, since each entry is looked up only a few times in its life. */
#include "supervisor/supervisor_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FIRST_FD        3
#define NAMES_BYTES_MAX (100u << 10) /* in the environment: Linux allows 128 KiB per string */

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
    if (store->count >= PARK_FILES_MAX) {
        return error_set(err, TCK_ERR_NOSPC, "no more than %d descriptors can be kept", store->count);
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

/* Moves the descriptor that has this number out of the way; one at a time, since free numbers are scarce. */
static bool vacate(struct store *store, int from, int place)
{
    for (int j = from; j < store->count; j++) {
        if (store->entries[j].fd == place) {
            store->entries[j].fd = fcntl(place, F_DUPFD_CLOEXEC, FIRST_FD + store->count);
            return store->entries[j].fd >= 0;
        }
    }
    return true;
}

/* Moves each descriptor to its number, from 3 on, where it stays open across exec. */
static bool move_all(struct store *store)
{
    for (int i = 0; i < store->count; i++) {
        struct store_entry *entry = &store->entries[i];
        int place = FIRST_FD + i;
        if (entry->fd == place) {
            if (fcntl(place, F_SETFD, 0) != 0) {
                return false;
            }
            continue;
        }
        if (!vacate(store, i + 1, place) || dup2(entry->fd, place) < 0) {
            return false;
        }
        close(entry->fd);
        entry->fd = place;
    }
    return true;
}

static bool set_variable(const char *name, const char *value)
{
    return setenv(name, value, 1) == 0; /* NOLINT(concurrency-mt-unsafe): the supervisor has one thread */
}

/* Passes the names as a file, after the descriptors that it describes. */
static bool names_in_file(const char *names, int place)
{
    char number[16];
    size_t len = strlen(names), done = 0;
    int fd = memfd_create("names", MFD_CLOEXEC);
    while (fd >= 0 && done < len) {
        ssize_t n = write(fd, names + done, len - done);
        if (n <= 0) {
            close(fd);
            return false;
        }
        done += (size_t)n;
    }
    snprintf(number, sizeof(number), "%d", place);
    bool placed = fd >= 0 && dup2(fd, place) == place;
    if (fd >= 0 && fd != place) {
        close(fd);
    }
    return placed && fcntl(place, F_SETFD, 0) == 0 && set_variable(PARK_NAMES_FD, number);
}

static bool pass_names(const struct store *store, const char *names)
{
    if (strlen(names) < NAMES_BYTES_MAX) {
        return set_variable("LISTEN_FDNAMES", names);
    }
    return names_in_file(names, FIRST_FD + store->count);
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
    bool set = set_variable("LISTEN_PID", pid) && set_variable("LISTEN_FDS", count) && pass_names(store, names);
    free(names);
    return set;
}

tck_status_t store_hand_on(struct store *store, struct error *err)
{
    if (!move_all(store) || !describe_all(store)) {
        return error_set(err, status_of_errno(errno), "pass %d descriptors to the agent: %m", store->count);
    }
    return TCK_OK;
}
