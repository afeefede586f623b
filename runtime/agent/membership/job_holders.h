/* SPDX-License-Identifier: Apache-2.0
 * Finds the trainers of this node that hold the job at the time of the request. It asks the kernel, because the event
 * loop may not have noticed the end of a process yet. */
#ifndef TCK_AGENT_JOB_HOLDERS_H
#define TCK_AGENT_JOB_HOLDERS_H

#include "agent/state/wire.h"

#include <stdbool.h>
#include <stdint.h>

struct client;
struct config;
struct hard_state;
struct holders;
struct peer;

/* Dependencies. */
struct holders_setup {
    const struct config *config;
    const struct hard_state *state;
    struct client *const *clients; /* the current list */
};

must_check tck_status_t holders_new(const struct holders_setup *setup, struct holders **out, struct error *err);
void holders_free(struct holders *h);
/* This agent resumes the term of this world: its trainers will reconnect by themselves, and hold the job until then. */
void holders_await(struct holders *h, const struct world *world);

/* True if this agent has just restarted, and trainers of this node may be alive that have not reconnected yet. */
bool holders_awaits_trainers(const struct holders *h);

/* The trainer of this node, if any, that would lose its job to a start of this run, and the term that the agent `to`
 * would be granted here. asker: the trainer that asks if it runs here, otherwise NULL. */
struct wire_holder holders_find(const struct holders *h, const struct wire_holder_ask *ask, uint64_t to,
                                const struct client *asker);
void holders_answer(const struct holders *h, struct peer *peer, const void *data, size_t len);

/* True if its process is running. */
bool holders_alive(const struct client *c);

#endif
