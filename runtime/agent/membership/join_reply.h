/* SPDX-License-Identifier: Apache-2.0
 * The answers to JOIN and REGISTER, which wait for sessions with other nodes. */
#ifndef TCK_AGENT_JOIN_REPLY_H
#define TCK_AGENT_JOIN_REPLY_H

#include "agent/state/context.h"

/* True if a JOIN or REGISTER of this client waits only for sessions. */
bool join_may_reply(const struct client *client);
/* err: NULL if it succeeded. */
void join_reply(struct client *client, const struct error *err);

#endif
