/* SPDX-License-Identifier: Apache-2.0
 * How often to save: the intervals that cost a training least, from what saves cost and how often nodes fail. Pure.
 *
 * The model is that of J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974,
 * with two levels. A save stalls the training; a failure loses, on average, half of the time from one save to the next.
 * Failures that memory survives lose time since the last save to memory, the others since the last one on storage, and
 * the time to read that, which is taken to be as long as a drain. The model holds as long as an interval is short
 * beside the time between failures. That storage may be down is not in it. */
#ifndef TCK_CORE_TUNE_H
#define TCK_CORE_TUNE_H

#include <stdbool.h>
#include <stdint.h>

/* As measured in the running job; all times are in seconds. */
struct tune_costs {
    double step;   /* above 0 */
    double stall;  /* of one save */
    double commit; /* from a save until its copies are made and it is committed; 0: not known */
    double drain;  /* from the decision to write a version to storage until it is published; 0: not known */
};

/* Mean times between failures, in seconds. */
struct tune_failures {
    uint32_t nodes, copies;
    double process; /* of one node's processes: its memory survives */
    double node;    /* of one node alone: its memory is lost */
    double several; /* of one node together with another one, as when a switch fails that connects both */
    double all;     /* of all nodes of the job at once */
};

/* What has been counted in the running job. Losses of all nodes are not, since no agent survives them. */
struct tune_counts {
    uint64_t restarts; /* starts that found every node with its memory */
    uint64_t nodes;    /* starts for which one node was replaced */
    uint64_t several;  /* and for which more were */
    double node_seconds;
};

struct tune_advice {
    uint64_t mem_steps, storage_steps; /* the second is a multiple of the first */
    double survived, lost;             /* failures per second that memory survives, and that it does not */
};

#define TUNE_COPIES_MAX 4

/* The mean times of a large cluster: per node of 8 GPUs, from 419 unexpected interruptions in 54 days on 2,048 nodes
 * ("The Llama 3 Herd of Models", arXiv 2407.21783, table 5): 61 were due to software, 35 to switches and cables, which
 * may take several nodes, and 323 to nodes and what belongs to them. How often all nodes fail is an assumption. */
struct tune_failures tune_assumed(uint32_t nodes, uint32_t copies);

/* The mean times in which both the assumed ones and what was counted have their share: each assumed time counts as one
 * failure in that time (the mean of the rate's posterior, from a Gamma prior of shape 1). */
struct tune_failures tune_counted(const struct tune_failures *assumed, const struct tune_counts *counts);

struct tune_advice tune_advise(const struct tune_costs *costs, const struct tune_failures *failures);
/* The same with another number of copies than in `failures`, with which `costs` was measured. */
struct tune_advice tune_advise_copies(const struct tune_costs *costs, const struct tune_failures *failures,
                                      uint32_t copies);
/* How many copies of each shard there should be, the rank's own included: the fewest from 2 to TUNE_COPIES_MAX with
 * which the share below is at most a thousandth of the time above the least, as more would take memory for little. 1 is
 * advised for a single node alone, since it makes each node that is lost depend on storage. */
uint32_t tune_copies(const struct tune_costs *costs, const struct tune_failures *failures);
/* The share of the time that saves and lost work take at these intervals. */
double tune_overhead(const struct tune_costs *costs, const struct tune_advice *at);

/* The intervals in force, where those that are automatic are chosen while the job runs. */
struct tune_intervals {
    uint64_t mem_steps, storage_steps; /* 0: not by steps */
    bool mem_auto, storage_auto;
    double mem_seconds, storage_seconds; /* at most, from one save to the next; 0: any time */
};

/* The intervals to go on with. One that is automatic changes if it differs from the advice by more than a quarter, so
 * that noise in what was measured changes nothing, and if all that the advice depends on has been measured. The one of
 * storage then is a multiple of that of memory. */
struct tune_intervals tune_choose(const struct tune_intervals *in_force, const struct tune_costs *costs,
                                  const struct tune_failures *failures);

#endif
