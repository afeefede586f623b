/* SPDX-License-Identifier: Apache-2.0
 * How trainers and agents form a term: HELLO, the claim of a term, joining its world, registering shards. */
#ifndef TCK_AGENT_MEMBERSHIP_H
#define TCK_AGENT_MEMBERSHIP_H

#include "agent/state/context.h"

void membership_handle_hello(struct client *client, const uint8_t *payload, size_t len);
void membership_handle_join(struct client *client, const uint8_t *payload, size_t len);
void membership_handle_register(struct client *client, const uint8_t *payload, size_t len);
void membership_handle_segment_get(struct client *client, const uint8_t *payload, size_t len);
/* Called when no operation is under way: starts a waiting registration. */
void membership_ops_idle(struct agent *agent);
/* After a restart of the agent: resumes the kept term. */
void membership_resume(struct agent *agent);
void membership_abandon(struct agent *agent);

#endif
