/* SPDX-License-Identifier: Apache-2.0
 * The intervals that cost a training least. */
#include "core/tune.h"

#include <math.h>

#define STEPS_MAX 1000000000.0
/* So much of the time storage may be busy with drains: the rest is for retries, for restores, and for other jobs. */
#define STORAGE_SHARE 0.5

static uint64_t whole_steps(double steps)
{
    return steps < 1 ? 1 : steps > STEPS_MAX ? (uint64_t)STEPS_MAX : (uint64_t)steps;
}

double tune_overhead(const struct tune_costs *costs, const struct tune_advice *at)
{
    double mem = (double)at->mem_steps * costs->step, storage = (double)at->storage_steps * costs->step;
    return costs->stall / (mem + costs->stall) + at->survived * mem / 2 + at->lost * (storage / 2 + costs->drain);
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

struct tune_advice tune_advise(const struct tune_costs *costs, const struct tune_failures *failures)
{
    double nodes = failures->nodes, of_nodes = nodes / failures->node;
    struct tune_advice out = {.survived = nodes / failures->process, .lost = 1 / failures->memory};
    *(failures->copies > 1 ? &out.survived : &out.lost) += of_nodes;
    out.mem_steps = best_mem_steps(costs, out);
    /* A drain does not stall the training, so it may be repeated as often as storage takes it. */
    uint64_t drains = whole_steps(ceil(costs->drain / STORAGE_SHARE / costs->step));
    out.storage_steps = (drains + out.mem_steps - 1) / out.mem_steps * out.mem_steps;
    return out;
}
