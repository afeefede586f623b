/* SPDX-License-Identifier: Apache-2.0
 * tierckpt stop: ends the agents of a job before their linger time is over, and frees their memory. */
#ifndef TCK_AGENT_STOP_H
#define TCK_AGENT_STOP_H

#include "base/status.h"
#include "base/version.h"

#include <stdbool.h>
#include <stdint.h>

struct client;
struct config;
struct idle_exit;
struct term_context;

/* Dependencies. */
struct stop_setup {
    const struct config *config;
    struct client *const *clients;    /* the current list */
    struct term_context *const *term; /* the current term */
    struct idle_exit *idle_exit;
    bool (*awaits_trainers)(const void *ctx); /* this agent has just restarted, so trainers may be about to reconnect */
    const void *ctx;
};

/* TCK_ERR_BUSY if trainers run here or may do so. */
must_check tck_status_t stop_check_trainers(const struct stop_setup *stop, struct error *err);
/* TCK_ERR_BUSY if `held`, the newest version in memory, is not published. */
must_check tck_status_t stop_check_memory(const struct stop_setup *stop, struct version held, struct error *err);
/* Ends this agent and those of its term that can be reached. Without force, agents with trainers keep running. */
void stop_request(const struct stop_setup *stop, bool force);
void stop_handle(const struct stop_setup *stop, struct term_context *tc, uint32_t from, bool force);

#endif
