/* SPDX-License-Identifier: Apache-2.0
 * Twins are data-parallel copies that training keeps equal. Their roots come with every READY, and ahead of it where
 * devices make them: if two differ, memory or arithmetic went wrong somewhere, or ranks that were declared replicas are
 * none. */
#ifndef TCK_AGENT_TWINS_H
#define TCK_AGENT_TWINS_H

#include "agent/state/context.h"

/* Coordinator: compares the roots that nodes report of shards they share; a difference is said aloud, never decided. */
void twins_compare(struct term_context *tc, uint32_t node, const struct wire_roots *m);
void twins_free(struct term_context *tc);

#endif
