/* SPDX-License-Identifier: Apache-2.0
 * The intervals that cost a training least, and how many copies are worth their memory. */
#include "core/tune.h"

#include <math.h>

#define STEPS_MAX     1000000000.0
#define HOUR_S        3600.0
#define PROCESS_HOURS 43000
#define NODE_HOURS    8200
#define SEVERAL_HOURS 37900 /* each such failure is one of AT_ONCE nodes */
#define ALL_HOURS     2000
#define AT_ONCE       2     /* nodes that fail together if several do */
#define COPY_WORTH    0.001 /* of the time */
/* So much of the time storage may be busy with drains: the rest is for retries, for restores, and for other jobs. */
#define STORAGE_SHARE 0.5
#define COPY_SHARE    0.5 /* the same of the network and copies */

static uint64_t whole_steps(double steps)
{
    return steps < 1 ? 1 : steps > STEPS_MAX ? (uint64_t)STEPS_MAX : (uint64_t)steps;
}

double tune_overhead(const struct tune_costs *costs, const struct tune_advice *at)
{
    double mem = (double)at->mem_steps * costs->step, storage = (double)at->storage_steps * costs->step;
    return costs->stall / (mem + costs->stall) + at->survived * mem / 2 + at->lost * (storage / 2 + 2 * costs->drain);
}

struct tune_failures tune_assumed(uint32_t nodes, uint32_t copies)
{
    return (struct tune_failures){.nodes = nodes,
                                  .copies = copies,
                                  .process = PROCESS_HOURS * HOUR_S,
                                  .node = NODE_HOURS * HOUR_S,
                                  .several = SEVERAL_HOURS * HOUR_S,
                                  .all = ALL_HOURS * HOUR_S};
}

static double counted(double assumed, uint64_t count, const struct tune_counts *counts)
{
    return (assumed + counts->node_seconds) / (1 + (double)count);
}

struct tune_failures tune_counted(const struct tune_failures *assumed, const struct tune_counts *counts)
{
    struct tune_failures out = *assumed;
    out.process = counted(assumed->process, counts->restarts, counts);
    out.node = counted(assumed->node, counts->nodes, counts);
    out.several = counted(assumed->several, AT_ONCE * counts->several, counts);
    return out;
}

/* The whole number of steps beside the optimum of the model that costs less. */
static uint64_t best_mem_steps(const struct tune_costs *costs, struct tune_advice at)
{
    double rate = at.survived + at.lost, seconds = rate > 0 ? sqrt(2 * costs->stall / rate) : HUGE_VAL;
    at.mem_steps = at.storage_steps = whole_steps(seconds / costs->step);
    struct tune_advice more = at;
    more.mem_steps = more.storage_steps = at.mem_steps + 1;
    return tune_overhead(costs, &more) < tune_overhead(costs, &at) ? more.mem_steps : at.mem_steps;
}

/* So often that a save has its copies before the next one begins. */
static uint64_t mem_advice(const struct tune_costs *costs, const struct tune_advice *rates)
{
    uint64_t least = whole_steps(ceil(costs->commit / COPY_SHARE / costs->step)), best = best_mem_steps(costs, *rates);
    return best > least ? best : least;
}

/* A drain does not stall the training, so it may be repeated as often as storage takes it. A multiple of mem_steps, as
 * what goes to storage goes to memory, too. */
static uint64_t storage_advice(const struct tune_costs *costs, uint64_t most, uint64_t mem_steps)
{
    uint64_t steps = whole_steps(ceil(costs->drain / STORAGE_SHARE / costs->step));
    uint64_t unit = mem_steps > 0 ? mem_steps : 1, up = (steps + unit - 1) / unit * unit;
    uint64_t down = most / unit * unit;
    return up <= most ? up : down > 0 ? down : unit;
}

/* The probability that nodes which fail together have all copies of a shard, if they are any nodes: at most the sum
 * over the shards of all nodes, each of which has its copies on `copies` of them. */
static double all_copies_lost(const struct tune_failures *failures)
{
    double lost = failures->nodes;
    for (uint32_t i = 0; i < failures->copies && i < failures->nodes; i++) {
        lost *= i < AT_ONCE ? (double)(AT_ONCE - i) / (failures->nodes - i) : 0;
    }
    return lost < 1 ? lost : 1;
}

static struct tune_advice rates_of(const struct tune_failures *failures)
{
    double nodes = failures->nodes, lost = all_copies_lost(failures), of_nodes = nodes / failures->node;
    double of_several = failures->nodes > 1 ? nodes / failures->several / AT_ONCE : 0;
    bool elsewhere = failures->copies > 1 && failures->nodes > 1;
    return (struct tune_advice){.survived =
                                    nodes / failures->process + (elsewhere ? of_nodes : 0) + of_several * (1 - lost),
                                .lost = 1 / failures->all + (elsewhere ? 0 : of_nodes) + of_several * lost};
}

struct tune_advice tune_advise(const struct tune_costs *costs, const struct tune_failures *failures)
{
    struct tune_advice out = rates_of(failures);
    out.mem_steps = mem_advice(costs, &out);
    out.storage_steps = storage_advice(costs, UINT64_MAX, out.mem_steps);
    return out;
}

/* Copies are made one beside the other through the same network. How long they take is not known if none were made. */
static struct tune_costs with_copies(const struct tune_costs *costs, uint32_t measured, uint32_t copies)
{
    struct tune_costs out = *costs;
    out.commit = measured > 1 ? costs->commit * (copies - 1) / (measured - 1) : costs->commit;
    return out;
}

struct tune_advice tune_advise_copies(const struct tune_costs *costs, const struct tune_failures *failures,
                                      uint32_t copies)
{
    struct tune_failures at = *failures;
    struct tune_costs scaled = with_copies(costs, failures->copies, copies);
    at.copies = copies;
    return tune_advise(&scaled, &at);
}

uint32_t tune_copies(const struct tune_costs *costs, const struct tune_failures *failures)
{
    uint32_t most = failures->nodes < TUNE_COPIES_MAX ? failures->nodes : TUNE_COPIES_MAX, copies = most < 2 ? 1 : 2;
    double overhead[TUNE_COPIES_MAX + 1] = {0}, least = HUGE_VAL;
    for (uint32_t c = copies; c <= most; c++) {
        struct tune_advice advice = tune_advise_copies(costs, failures, c);
        overhead[c] = tune_overhead(costs, &advice);
        least = overhead[c] < least ? overhead[c] : least;
    }
    while (copies < most && overhead[copies] > least + COPY_WORTH) {
        copies++;
    }
    return copies;
}

static uint64_t steps_in(double seconds, double step)
{
    return seconds > 0 ? whole_steps(seconds / step) : UINT64_MAX;
}

static uint64_t changed(uint64_t steps, uint64_t advised, uint64_t most)
{
    uint64_t tolerance = advised / 4;
    bool is_near = steps <= advised + tolerance && steps + tolerance >= advised;
    return is_near && steps <= most ? steps : advised;
}

struct tune_intervals tune_choose(const struct tune_intervals *in_force, const struct tune_costs *costs,
                                  const struct tune_failures *failures)
{
    struct tune_intervals out = *in_force;
    struct tune_advice rates = rates_of(failures);
    if (out.mem_auto && costs->step > 0 && costs->commit > 0) {
        uint64_t most = steps_in(out.mem_seconds, costs->step), advised = mem_advice(costs, &rates);
        out.mem_steps = changed(out.mem_steps, advised < most ? advised : most, most);
    }
    if (out.storage_auto && costs->step > 0 && costs->drain > 0) {
        uint64_t most = steps_in(out.storage_seconds, costs->step);
        uint64_t advised = storage_advice(costs, most, out.mem_steps);
        bool fits = out.mem_steps == 0 || out.storage_steps % out.mem_steps == 0;
        out.storage_steps = fits ? changed(out.storage_steps, advised, most) : advised;
    }
    return out;
}
