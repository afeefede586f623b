/* SPDX-License-Identifier: Apache-2.0
 * Answers the requests of the tierckpt command, as JSON: {"op": ..., ...} -> an object with "ok", or "error". */
#ifndef TCK_AGENT_COMMAND_REQUESTS_H
#define TCK_AGENT_COMMAND_REQUESTS_H

#include "agent/state/context.h"

void control_request(struct client *client, const uint8_t *payload, size_t len);

/* Fills a new catalog from the slot headers. */
void control_feed_catalog(struct agent *agent);

#endif
