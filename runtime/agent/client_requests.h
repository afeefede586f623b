/* SPDX-License-Identifier: Apache-2.0
 * The requests of trainers and commands: each message goes to the part that answers it. */
#ifndef TCK_AGENT_CLIENT_REQUESTS_H
#define TCK_AGENT_CLIENT_REQUESTS_H

#include "base/ipc.h"

#include <stdint.h>

struct agent;
struct client;

/* Callbacks of the IPC server; ctx is the agent. */
void client_requests_handle(void *ctx, struct client *client, const struct ipc_frame *frame);
/* The connection has ended: the term loses its rank unless another connection has it. */
void client_requests_client_gone(void *ctx, struct client *client);
/* Fails the requests that are pending in terms older than this one: those terms are over. */
void client_requests_term_over(struct agent *agent, uint64_t term);

#endif
