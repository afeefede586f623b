/* SPDX-License-Identifier: Apache-2.0
 * How long saves have kept trainers from training, as a histogram: one writer adds, others read it meanwhile. */
#ifndef TCK_BASE_STALL_H
#define TCK_BASE_STALL_H

#include <stdatomic.h>
#include <stdint.h>

#define STALL_BOUNDS  14
#define STALL_BUCKETS (STALL_BOUNDS + 1) /* the last one has no bound */

/* Of one trainer, in the page that it shares with its agent. */
struct stall_board {
    _Atomic uint64_t buckets[STALL_BUCKETS]; /* saves, each in one bucket */
    _Atomic uint64_t total_ns;
};

struct stalls {
    uint64_t buckets[STALL_BUCKETS];
    uint64_t total_ns;
};

/* The longest stall that belongs to a bucket. */
uint64_t stall_bound_us(unsigned bucket);
void stall_board_add(struct stall_board *board, uint64_t stall_ns);
/* Adds what the board shows to the sum. */
void stalls_add_board(struct stalls *sum, const struct stall_board *board);

#endif
