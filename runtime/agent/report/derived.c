/* SPDX-License-Identifier: Apache-2.0
 * See derived.h. */
#include "agent/report/derived.h"

static uint64_t age_ms(uint64_t since_ms, uint64_t now_ms)
{
    return since_ms != 0 && since_ms <= now_ms ? now_ms - since_ms : 0;
}

void report_operations(const struct report *r, struct operation out[OPERATIONS])
{
    uint64_t draining_ms = version_none(r->tally.draining) ? 0 : r->tally.draining_since_ms;
    *out++ = (struct operation){"drain", age_ms(draining_ms, r->now_ms), NULL};
    *out++ = (struct operation){"recovery", age_ms(r->recoveries.under_way_since_ms, r->now_ms), NULL};
    *out++ = (struct operation){"storage_call", age_ms(r->storage.oldest_since_ms, r->now_ms), NULL};
    for (int i = 0; i < AWAITS; i++) {
        const struct wait *wait = &r->awaited.of[i];
        *out++ = (struct operation){await_name((enum await)i), age_ms(wait->since_ms, r->now_ms), wait};
    }
}

uint64_t report_nodes(const struct report *r)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < NODE_STATES; i++) {
        count += r->in_term.nodes[i];
    }
    return count;
}

uint64_t report_saves(const struct report *r)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < STALL_BUCKETS; i++) {
        count += r->trainers.stalls.buckets[i];
    }
    return count;
}
