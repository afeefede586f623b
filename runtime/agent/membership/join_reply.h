/* SPDX-License-Identifier: Apache-2.0
 * The answers to JOIN and REGISTER, which wait for sessions with other nodes. */
#ifndef TCK_AGENT_JOIN_REPLY_H
#define TCK_AGENT_JOIN_REPLY_H

#include "base/status.h"

#include <stdbool.h>

struct client;
struct term_context;
struct trainers;

/* Dependencies. */
struct join_setup {
    struct term_context *const *term; /* the current term */
    const struct trainers *trainers;
};

/* True if a JOIN or REGISTER of this client waits only for sessions. */
bool join_may_reply(const struct join_setup *join, const struct client *client);
/* err: NULL if it succeeded. */
void join_reply(const struct join_setup *join, struct client *client, const struct error *err);

#endif
