/* SPDX-License-Identifier: Apache-2.0
 * Lets starts on this node find the agent, and ensures that there is at most one: the locked file and the socket in the
 * runtime directory (base/place.h), and a name that survives if they are deleted (base/anchor.h). */
#ifndef TCK_AGENT_PRESENCE_H
#define TCK_AGENT_PRESENCE_H

#include "base/status.h"

struct config;
struct ipc_server;
struct presence;

/* Dependencies. */
struct presence_setup {
    const struct config *config;
    struct ipc_server *const *server; /* the agent's current server; NULL at first */
    void (*made_again)(void *ctx);    /* the directory was recreated; other files in it are missing, too */
    void *ctx;
};

/* Called before storage, catalog and network are opened. TCK_ERR_EXIST: another agent serves this job and node. */
must_check tck_status_t presence_take(const struct presence_setup *setup, struct presence **out, struct error *err);
void presence_free(struct presence *presence);
/* To be called once the agent listens on its socket: from then on it can also be reached by its name. */
must_check tck_status_t presence_begin(struct presence *presence, struct error *err);
/* To be called about once a second. */
void presence_tick(struct presence *presence);

#endif
