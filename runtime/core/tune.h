/* SPDX-License-Identifier: Apache-2.0
 * How often to save: the intervals that cost a training least, from what saves cost and how often nodes fail. Pure.
 *
 * The model is that of J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974,
 * with two levels. A save stalls the training; a failure loses, on average, half of the time from one save to the next.
 * Failures that memory survives lose time since the last save to memory, the others since the last one on storage. It
 * holds as long as an interval is short beside the time between failures. */
#ifndef TCK_CORE_TUNE_H
#define TCK_CORE_TUNE_H

#include <stdint.h>

/* As measured in the running job; all times are in seconds. */
struct tune_costs {
    double step;  /* above 0 */
    double stall; /* of one save */
    double drain; /* from the decision to write a version to storage until it is published; 0: not known */
};

/* Mean times between failures, in seconds. */
struct tune_failures {
    uint32_t nodes, copies;
    double process; /* of one node's processes: its memory survives */
    double node;    /* of one node: its memory is lost, and the copies on other nodes survive */
    double memory;  /* of so much at once that memory does not survive */
};

struct tune_advice {
    uint64_t mem_steps, storage_steps; /* the second is a multiple of the first */
    double survived, lost;             /* failures per second that memory survives, and that it does not */
};

struct tune_advice tune_advise(const struct tune_costs *costs, const struct tune_failures *failures);
/* The share of the time that saves and lost work take at these intervals. */
double tune_overhead(const struct tune_costs *costs, const struct tune_advice *at);

#endif
