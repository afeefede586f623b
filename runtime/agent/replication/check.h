/* SPDX-License-Identifier: Apache-2.0
 * Checks a slot against its digests: all threads of the pool take chunks from one counter. */
#ifndef TCK_AGENT_CHECK_H
#define TCK_AGENT_CHECK_H

#include "base/status.h"

#include <stdint.h>

struct pool;
struct segment;
struct slot_ops;

/* Dependencies. */
struct check_setup {
    struct pool *pool;
    uint32_t threads; /* of pool */
    struct slot_ops *slot_ops;
};

/* Compares all chunks of a slot with its digests; the slot must not change until done has been called. */
typedef void check_done_fn(void *ctx, const struct error *outcome);
void check_slot(const struct check_setup *setup, struct segment *segment, uint32_t slot, check_done_fn *done,
                void *ctx);

#endif
