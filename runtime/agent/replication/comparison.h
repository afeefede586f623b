/* SPDX-License-Identifier: Apache-2.0
 * Finds what is the same in a slot and its base before copies of the slot are offered. A slot is compared with its base
 * once, in the pool, while all copies of it wait for that; copies that begin later have the result at once. It is
 * compared in small parts, between which copies end that are not wanted any more. */
#ifndef TCK_AGENT_COMPARISON_H
#define TCK_AGENT_COMPARISON_H

#include "agent/driver/term.h"
#include "base/pool.h"
#include "tiers/tier.h"

/* A copy that is to be offered: the caller's, with all up to `base` and `done` filled in, and the slot with a pin. */
struct compared_copy {
    struct term_context *tc;
    uint32_t slot, node;
    const struct tier_item *item; /* its progress is stamped after each part */
    struct tier_base *base;       /* filled in by comparison_wait */
    uint8_t *same;                /* owned by the caller in the end; NULL: all has to be sent */
    uint64_t same_bytes;
    void (*done)(struct compared_copy *copy, bool wanted);
    struct compared_copy *next; /* that waits for the same comparison */
};

/* Has the copy wait until its slot was compared with this base, which has a pin for the time of this call; then calls
 * done in the loop's thread, with wanted false if the copy was canceled, its node is lost or the term is over. False:
 * it need not wait, and done is not called. Then it has what is known already, or all has to be sent. */
bool comparison_wait(struct compared_copy *copy, uint32_t base_slot, struct pool *pool);

#endif
