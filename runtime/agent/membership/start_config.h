/* SPDX-License-Identifier: Apache-2.0
 * Handles a start whose configuration differs from the one that this agent was started with. */
#ifndef TCK_AGENT_START_CONFIG_H
#define TCK_AGENT_START_CONFIG_H

#include "base/config.h"
#include "base/message.h"

struct client;
struct fdstore;
struct start_config;
struct trainers;

/* Dependencies. */
struct start_config_setup {
    struct config *config;         /* in force */
    struct client *const *clients; /* the current list */
    struct fdstore *fdstore;
    struct trainers *trainers;
};

/* Takes the current configuration as the one that this agent was started with. */
must_check tck_status_t start_config_new(const struct start_config_setup *setup, struct start_config **out,
                                         struct error *err);
void start_config_free(struct start_config *sc);
/* To be called if a trainer has started this agent, with the file in the runtime directory. */
void start_config_set_spawned(struct start_config *sc);

/* Compares the start's configuration with this agent's. May exit, to be restarted with the new one. TCK_ERR_BUSY: other
 * trainers use this agent. */
must_check tck_status_t start_config_compare(struct start_config *sc, struct client *client, const struct msg_hello *m,
                                             struct error *err);
/* The start's term has begun: applies the keys that may change while a job runs. */
void start_config_apply(struct start_config *sc, struct client *client);
/* The file in the runtime directory was deleted: a restarted agent needs it. */
void start_config_write_again(const struct start_config *sc);

#endif
