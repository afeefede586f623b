/* SPDX-License-Identifier: Apache-2.0
 * The agent's side of the file descriptor store: descriptors go to the process behind NOTIFY_SOCKET (systemd or our
 * supervisor). */
#ifndef TCK_AGENT_FDSTORE_H
#define TCK_AGENT_FDSTORE_H

#include "base/config.h"
#include "base/status.h"

struct fdstore;

struct parked {
    uint64_t files;      /* of this node's memory and state */
    uint64_t not_parked; /* those that only the agent holds */
    const char *with;    /* "supervisor", "service manager", "none" */
};

must_check tck_status_t fdstore_new(const struct config *config, struct fdstore **out, struct error *err);
void fdstore_free(struct fdstore *p);
/* How many files may be stored by a process that may open this many descriptors: some are left for its own use. */
uint32_t fdstore_most(uint64_t descriptors);
/* The descriptor stays the caller's, and is kept open until fdstore_remove, since a new supervisor gets it again.
 * TCK_ERR_NOSPC, which names the limit, if no more can be stored. May wait for a busy supervisor; fdstore_put_now, for
 * the event loop, does not. What cannot be sent stays pending. */
tck_status_t fdstore_put(void *ctx, const char *name, int fd, struct error *err);
tck_status_t fdstore_put_now(void *ctx, const char *name, int fd, struct error *err);
void fdstore_remove(void *ctx, const char *name);
bool fdstore_holds(struct fdstore *p, const char *name);
must_check tck_status_t fdstore_ready(struct fdstore *p, struct error *err);
/* Probes the supervisor; if it is dead, starts another one and sends it everything. */
void fdstore_tick(struct fdstore *p);
struct parked fdstore_parked(struct fdstore *p);
/* True if the store has everything that a successor needs and will start one. */
bool fdstore_has_all(struct fdstore *p);
void fdstore_stopping(struct fdstore *p);

#endif
