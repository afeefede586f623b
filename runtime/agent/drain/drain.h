/* SPDX-License-Identifier: Apache-2.0
 * Drains: each node writes its part of a committed version into the stage. The coordinator collects the nodes' reports,
 * writes the manifest and publishes. */
#ifndef TCK_AGENT_DRAIN_H
#define TCK_AGENT_DRAIN_H

#include "agent/state/context.h"

void drain_begin(struct term_context *tc, const struct action *action);
void drain_notify(struct term_context *tc, const struct action *action);
void drain_handle_drained(struct term_context *tc, uint32_t node, const void *data, size_t len);
void drain_publish(struct term_context *tc, const struct action *action);
/* Discards the manifest that is being assembled. */
void drain_reset(struct agent *agent);

#endif
