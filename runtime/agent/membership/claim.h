/* SPDX-License-Identifier: Apache-2.0
 * Claims a term for a trainer: reads from storage which starts own the newest terms, asks their agents whether
 * trainers are alive, and lets core/holder.h decide. The term is one that an agent has reserved, otherwise the next
 * free one on storage. If storage does not answer, the claim relies on what agents keep in memory: the world of the
 * last term, and the terms reserved for its successors. */
#ifndef TCK_AGENT_CLAIM_H
#define TCK_AGENT_CLAIM_H

#include "agent/membership/claim_setup.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct claims;
struct peer;

must_check tck_status_t claims_new(const struct claims_setup *setup, struct claims **out, struct error *err);
void claim_handle_request(struct claims *claims, struct client *client, const uint8_t *payload, size_t len);
void claim_handle_holder(struct claims *claims, const struct peer *from, const void *data, size_t len);
void claim_handle_grant(struct claims *claims, const struct peer *from, const void *data, size_t len);
void claim_tick(struct claims *claims);
/* Abandons the claims that have not ended. */
void claims_free(struct claims *claims);

#endif
