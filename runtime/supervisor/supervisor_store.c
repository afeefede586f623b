/* SPDX-License-Identifier: Apache-2.0
 * An array, with a search tree by name, since a node may have tens of thousands of entries. */
#include "supervisor/supervisor_store.h"

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FIRST_FD        3
#define NAMES_BYTES_MAX (100u << 10) /* in the environment: Linux allows 128 KiB per string */

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static struct store_entry *find(const struct store *store, const char *name)
{
    struct store_entry *const *node = tfind(name, (void *const *)&store->by_name, by_name);
    return node != NULL ? *node : NULL;
}

static size_t names_bytes(const struct store *store)
{
    size_t bytes = 1;
    for (int i = 0; i < store->count; i++) {
        bytes += strlen(store->entries[i]->name) + 1;
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
    struct store_entry **entries = realloc(store->entries, (size_t)cap * sizeof(struct store_entry *));
    if (entries == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for %d descriptors", cap);
    }
    store->entries = entries;
    store->cap = cap;
    return TCK_OK;
}

/* The entry owns the descriptor on success. */
static tck_status_t add(struct store *store, const char *name, int fd, struct error *err)
{
    tck_status_t status = grow(store, err);
    if (status != TCK_OK) {
        return status;
    }
    struct store_entry *entry = calloc(1, sizeof(*entry));
    if (entry != NULL) {
        snprintf(entry->name, sizeof(entry->name), "%s", name);
    }
    if (entry == NULL || tsearch(entry, &store->by_name, by_name) == NULL) {
        free(entry);
        return error_set(err, TCK_ERR_NOMEM, "no memory for another descriptor");
    }
    entry->fd = fd;
    entry->place = store->count;
    store->entries[store->count++] = entry;
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
    tck_status_t status = add(store, name, fd, err);
    if (status != TCK_OK) {
        close(fd);
    }
    return status;
}

static void free_entry(struct store *store, struct store_entry *entry)
{
    (void)tdelete(entry, &store->by_name, by_name);
    close(entry->fd);
    free(entry);
}

bool store_remove(struct store *store, const char *name)
{
    struct store_entry *entry = find(store, name);
    if (entry == NULL) {
        return false;
    }
    struct store_entry *last = store->entries[--store->count];
    last->place = entry->place;
    store->entries[last->place] = last;
    free_entry(store, entry);
    return true;
}

void store_free(struct store *store)
{
    for (int i = 0; i < store->count; i++) {
        free_entry(store, store->entries[i]);
    }
    free(store->entries);
    *store = (struct store){0};
}

/* ---- hand on ------------------------------------------------------------------------------------------------- */

/* Which entry has each of the numbers below end, NULL: none; NULL altogether if there is no memory. */
static struct store_entry **by_number(const struct store *store, int end)
{
    struct store_entry **entries = calloc((size_t)end, sizeof(struct store_entry *));
    for (int i = 0; entries != NULL && i < store->count; i++) {
        if (store->entries[i]->fd < end) {
            entries[store->entries[i]->fd] = store->entries[i];
        }
    }
    return entries;
}

/* Moves one descriptor to its number, and first the one that has this number out of the way: one at a time, since free
 * numbers are scarce. */
static bool move_one(struct store_entry *entry, int place, struct store_entry *there, int end)
{
    if (entry->fd == place) {
        return fcntl(place, F_SETFD, 0) == 0;
    }
    if (there != NULL) {
        there->fd = fcntl(place, F_DUPFD_CLOEXEC, end);
        if (there->fd < 0) {
            return false;
        }
    }
    if (dup2(entry->fd, place) < 0) {
        return false;
    }
    close(entry->fd);
    entry->fd = place;
    return true;
}

/* Moves each descriptor to its number, from 3 on, where it stays open across exec. */
static bool move_all(struct store *store)
{
    int end = FIRST_FD + store->count;
    struct store_entry **numbers = by_number(store, end);
    bool moved = numbers != NULL;
    for (int i = 0; moved && i < store->count; i++) {
        struct store_entry *entry = store->entries[i];
        int place = FIRST_FD + i, from = entry->fd;
        moved = move_one(entry, place, numbers[place], end);
        if (from < end) {
            numbers[from] = NULL;
        }
    }
    free(numbers);
    return moved;
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
        end += sprintf(end, "%s%s", i == 0 ? "" : ":", store->entries[i]->name);
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
