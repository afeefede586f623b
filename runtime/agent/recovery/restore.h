/* SPDX-License-Identifier: Apache-2.0
 * Answers the trainers' restore requests: asks the coordinator, and passes its answer to the trainers that wait. */
#ifndef TCK_AGENT_RESTORE_H
#define TCK_AGENT_RESTORE_H

#include "agent/state/wire.h"

#include <stddef.h>
#include <stdint.h>

struct client;
struct config;
struct connectivity;
struct fetches;
struct hard_state;
struct term_context;

/* Dependencies. */
struct restore_setup {
    const struct config *config;
    struct hard_state *state;
    struct client *const *clients;    /* the current list */
    struct term_context *const *term; /* the current term */
    const struct connectivity *connectivity;
    const struct fetches *fetches;
};

/* The coordinator's outcome has arrived: replies to the trainers that wait for it. */
void restore_readable(const struct restore_setup *restore, struct term_context *tc, const struct wire_readable *m);
void restore_client(const struct restore_setup *restore, struct client *client, const uint8_t *payload, size_t len);
void restore_query(const struct restore_setup *restore, struct client *client, const uint8_t *payload, size_t len);
/* A shard has arrived, which a trainer may be waiting for. */
void restore_arrived(const struct restore_setup *restore, struct term_context *tc);
/* Repeats requests to the coordinator for trainers that wait. */
void restore_tick(const struct restore_setup *restore, struct term_context *tc);

#endif
