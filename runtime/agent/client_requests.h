/* SPDX-License-Identifier: Apache-2.0
 * What trainers and commands ask for: each message goes to the part that answers it. */
#ifndef TCK_AGENT_CLIENT_REQUESTS_H
#define TCK_AGENT_CLIENT_REQUESTS_H

#include "agent/state/context.h"

void client_requests_handle(struct client *client, const struct ipc_frame *frame);
/* Its rank is lost to the term, unless another connection has it. */
void client_requests_client_gone(struct client *client);
/* Ends what waits for an answer of a term older than this one, with an error that says that it is over. */
void client_requests_term_over(struct agent *agent, uint64_t term);

#endif
