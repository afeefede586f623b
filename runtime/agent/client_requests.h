/* SPDX-License-Identifier: Apache-2.0
 * The requests of trainers and commands: each message goes to the part that answers it. */
#ifndef TCK_AGENT_CLIENT_REQUESTS_H
#define TCK_AGENT_CLIENT_REQUESTS_H

#include "agent/state/context.h"

void client_requests_handle(struct client *client, const struct ipc_frame *frame);
/* The connection has ended: the term loses its rank unless another connection has it. */
void client_requests_client_gone(struct client *client);
/* Fails the requests that are pending in terms older than this one: those terms are over. */
void client_requests_term_over(struct agent *agent, uint64_t term);

#endif
