/* SPDX-License-Identifier: Apache-2.0
 * Which trainers of this node hold the job, at the moment of the question: the kernel is asked, because the event
 * loop may not have seen the end of a process yet. */
#ifndef TCK_AGENT_JOB_HOLDERS_H
#define TCK_AGENT_JOB_HOLDERS_H

#include "agent/state/context.h"

/* The trainer of this node, if any, that would lose its job to a start of this run, and the term that the agent `to`
 * would be granted here. asker: the trainer that asks if it runs here, otherwise NULL. */
struct wire_holder holders_find(const struct agent *agent, const struct wire_holder_ask *ask, uint64_t to,
                                const struct client *asker);
void holders_answer(struct agent *agent, struct peer *peer, const void *data, size_t len);

/* True if its process is running. */
bool holders_alive(const struct client *c);

#endif
