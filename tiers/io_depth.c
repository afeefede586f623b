/* SPDX-License-Identifier: Apache-2.0
 * See io_depth.h. While the average request takes about as long as the quickest one, none waits for another, and more
 * may go; if it takes twice as long, half of them wait in a queue. */
#include "tiers/io_depth.h"

struct io_depth io_depth_new(uint32_t least, uint32_t most)
{
    return (struct io_depth){.now = least, .least = least, .most = most};
}

static uint32_t bounded(const struct io_depth *d, uint32_t depth)
{
    return depth < d->least ? d->least : depth > d->most ? d->most : depth;
}

static uint32_t next_depth(const struct io_depth *d, uint64_t average_ns)
{
    if (average_ns <= d->quickest_ns + d->quickest_ns / 4) {
        return d->now * 2;
    }
    if (average_ns <= d->quickest_ns + d->quickest_ns / 2) {
        return d->now + 1;
    }
    return average_ns < 2 * d->quickest_ns ? d->now : d->now - 1;
}

void io_depth_returned(struct io_depth *d, uint64_t ns, bool full)
{
    if (d->quickest_ns == 0 || ns < d->quickest_ns) {
        d->quickest_ns = ns > 0 ? ns : 1;
    }
    if (!full) {
        return;
    }
    d->sum_ns += ns;
    d->count++;
    if (d->count >= d->now) {
        d->now = bounded(d, next_depth(d, d->sum_ns / d->count));
        d->sum_ns = 0;
        d->count = 0;
    }
}

void io_depth_paused(struct io_depth *d)
{
    d->quickest_ns = 0;
    d->sum_ns = 0;
    d->count = 0;
}
