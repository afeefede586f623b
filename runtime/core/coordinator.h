/* SPDX-License-Identifier: Apache-2.0
 * Makes the one decision per version, on the node of rank 0. Its state is the decision and the reports of the nodes.
 * Nodes repeat their reports by themselves, and the agent keeps the decision across its own restart. */
#ifndef TCK_CORE_COORDINATOR_H
#define TCK_CORE_COORDINATOR_H

#include "core/protocol.h"

struct coordinator_setup {
    uint64_t term;
    uint32_t node_count;
    struct hash128 layout;
    uint32_t version_timeout_ms;                 /* without progress */
    uint32_t drain_pause_ms, drain_pause_max_ms; /* after one failed drain, and after many */
    const bool *drains;                          /* node_count entries: has a part in every drain */
};

struct coordinator;

size_t coordinator_memory(const struct coordinator_setup *setup);
/* decision: NULL at the start of a term, or the stored one. */
struct coordinator *coordinator_init(void *memory, const struct coordinator_setup *setup,
                                     const struct decision *decision, uint64_t now_ms);
uint32_t coordinator_actions_max(const struct coordinator_setup *setup);
void coordinator_step(struct coordinator *c, const struct event *event, struct actions *out);
const struct decision *coordinator_decision(const struct coordinator *c);

#endif
