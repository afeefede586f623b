/* SPDX-License-Identifier: Apache-2.0
 * Answers the trainers' restore requests: asks the coordinator, and passes its answer to the trainers that wait. */
#ifndef TCK_AGENT_RESTORE_H
#define TCK_AGENT_RESTORE_H

#include "agent/state/context.h"

/* The coordinator's outcome has arrived: replies to the trainers that wait for it. */
void restore_readable(struct term_context *tc, const struct wire_readable *m);
void restore_client(struct client *client, const uint8_t *payload, size_t len);
void restore_query(struct client *client, const uint8_t *payload, size_t len);
/* Repeats requests to the coordinator for trainers that wait. */
void restore_arrived(struct term_context *tc); /* a shard has arrived: a trainer may wait for it */
void restore_tick(struct term_context *tc);

#endif
