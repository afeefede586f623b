/* SPDX-License-Identifier: Apache-2.0
 * Requests of the command, as JSON: {"op": ..., ...} -> an object with "ok", or "error". */
#ifndef TCK_AGENT_COMMAND_REQUESTS_H
#define TCK_AGENT_COMMAND_REQUESTS_H

#include "agent/state/context.h"

void control_request(struct client *client, const uint8_t *payload, size_t len);

/* Tells a catalog that begins anew what the headers know. */
void control_feed_catalog(struct agent *agent);

#endif
