/* SPDX-License-Identifier: Apache-2.0
 * The descriptors that the supervisor holds for the agent, by name. */
#ifndef TCK_AGENT_SUPERVISOR_STORE_H
#define TCK_AGENT_SUPERVISOR_STORE_H

#include "tiers/sd_notify.h"

struct store_entry {
    char name[PARK_NAME_MAX]; /* the first member: the tree compares entries as names */
    int fd;
    int place; /* in the array */
};

/* All zero: empty. */
struct store {
    struct store_entry **entries;
    void *by_name;
    int count, cap;
};

/* Takes ownership of fd in any case, and closes an older one of the same name. TCK_ERR_NOSPC if there are
 * PARK_FILES_MAX. */
must_check tck_status_t store_put(struct store *store, const char *name, int fd, struct error *err);
/* False if there is none of that name. */
bool store_remove(struct store *store, const char *name);
void store_free(struct store *store);

/* For a forked child that is about to exec: moves all descriptors to 3 and on, and describes them in its environment
 * (LISTEN_PID, LISTEN_FDS, and LISTEN_FDNAMES or, if that is too long for the environment, PARK_NAMES_FD). */
must_check tck_status_t store_hand_on(struct store *store, struct error *err);

#endif
