/* SPDX-License-Identifier: Apache-2.0
 * The histogram of stalls. */
#include "base/stall.h"

static const uint32_t bounds_us[STALL_BOUNDS] = {100,   250,    500,    1000,   2500,    5000,    10000,
                                                 25000, 100000, 250000, 500000, 1000000, 2500000, 10000000};

uint64_t stall_bound_us(unsigned bucket)
{
    return bucket < STALL_BOUNDS ? bounds_us[bucket] : UINT64_MAX;
}

static void add(_Atomic uint64_t *counter, uint64_t value)
{
    uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, before + value, memory_order_relaxed);
}

void stall_board_add(struct stall_board *board, uint64_t stall_ns)
{
    unsigned bucket = 0;
    while (bucket < STALL_BOUNDS && stall_ns > (uint64_t)bounds_us[bucket] * 1000) {
        bucket++;
    }
    add(&board->buckets[bucket], 1);
    add(&board->total_ns, stall_ns);
}

void stalls_add_board(struct stalls *sum, const struct stall_board *board)
{
    for (unsigned i = 0; i < STALL_BUCKETS; i++) {
        sum->buckets[i] += atomic_load_explicit(&board->buckets[i], memory_order_relaxed);
    }
    sum->total_ns += atomic_load_explicit(&board->total_ns, memory_order_relaxed);
}
