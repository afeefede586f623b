/* SPDX-License-Identifier: Apache-2.0
 * Compares twins, the data-parallel copies that training keeps equal. */
#ifndef TCK_AGENT_TWINS_H
#define TCK_AGENT_TWINS_H

#include "agent/driver/term.h"

/* Coordinator: compares the roots reported for shards with several owners. A difference is logged and counted; it
 * changes no decision. */
void twins_compare(struct term_context *tc, uint32_t node, const struct wire_roots *m);
void twins_free(struct term_context *tc);

#endif
