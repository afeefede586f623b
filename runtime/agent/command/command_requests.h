/* SPDX-License-Identifier: Apache-2.0
 * Answers the requests of the tierckpt command, as JSON: {"op": ..., ...} -> an object with "ok", or "error". */
#ifndef TCK_AGENT_COMMAND_REQUESTS_H
#define TCK_AGENT_COMMAND_REQUESTS_H

#include <stddef.h>
#include <stdint.h>

struct agent;
struct catalog;
struct client;
struct memory;

void control_request(struct agent *agent, struct client *client, const uint8_t *payload, size_t len);

/* Fills a new catalog from the slot headers. */
void control_feed_catalog(struct catalog *catalog, const struct memory *memory, const char *node);

#endif
