/* SPDX-License-Identifier: Apache-2.0
 * Claiming a term for a trainer: storage says to whom the terms before belong, the agents of those say whether their
 * trainers live, and core/holder.h decides. The term is then one that an agent has reserved, or else the next that is
 * free on storage. If storage does not answer, what the agents have in memory has to do: the world of the last term,
 * and the terms that were reserved for its successors. */
#ifndef TCK_AGENT_CLAIM_H
#define TCK_AGENT_CLAIM_H

#include "agent/state/context.h"

void claim_handle_request(struct client *client, const uint8_t *payload, size_t len);
void claim_handle_holder(struct agent *agent, const struct peer *from, const void *data, size_t len);
void claim_handle_grant(struct agent *agent, const struct peer *from, const void *data, size_t len);
void claim_tick(struct agent *agent);
/* Abandons the claims that have not ended. */
void claims_free(struct agent *agent);

#endif
