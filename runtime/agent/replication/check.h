/* SPDX-License-Identifier: Apache-2.0
 * Checks a slot against its digests: all threads of the pool take chunks from one counter. */
#ifndef TCK_AGENT_CHECK_H
#define TCK_AGENT_CHECK_H

#include "agent/state/context.h"

/* Compares all chunks of a slot with its digests; the slot must not change until done has been called. */
typedef void check_done_fn(void *ctx, const struct error *outcome);
void check_slot(struct agent *agent, struct segment *segment, uint32_t slot, check_done_fn *done, void *ctx);

#endif
