/* SPDX-License-Identifier: Apache-2.0
 * The advice on intervals, checked against a simulation of trainings that fail at random. */
#include "core/tune.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#define HOUR 3600.0
#define DAY  (24 * HOUR)

static const struct tune_failures rare = {
    .nodes = 64, .copies = 2, .process = 500 * DAY, .node = 500 * DAY, .memory = 90 * DAY};

Test(tune, saves_at_every_step_if_that_costs_nothing)
{
    const struct tune_costs costs = {.step = 1};
    struct tune_advice advice = tune_advise(&costs, &rare);
    cr_assert_eq(advice.mem_steps, 1);
    cr_assert_eq(advice.storage_steps, 1);
}

Test(tune, saves_less_often_if_a_save_costs_more_and_more_often_if_nodes_fail_more)
{
    struct tune_costs costs = {.step = 1, .stall = 0.01};
    uint64_t cheap = tune_advise(&costs, &rare).mem_steps;
    costs.stall = 1;
    uint64_t dear = tune_advise(&costs, &rare).mem_steps;
    struct tune_failures often = rare;
    often.node = DAY;
    uint64_t failing = tune_advise(&costs, &often).mem_steps;
    cr_assert_gt(dear, 5 * cheap);
    cr_assert_lt(failing, dear / 5);
}

Test(tune, leaves_storage_half_of_the_time)
{
    const struct tune_costs costs = {.step = 0.5, .stall = 0.002, .drain = 60};
    struct tune_advice advice = tune_advise(&costs, &rare);
    cr_assert_geq((double)advice.storage_steps * costs.step, 120);
    cr_assert_lt((double)advice.storage_steps * costs.step, 120 + (double)advice.mem_steps * costs.step);
    cr_assert_eq(advice.storage_steps % advice.mem_steps, 0);
}

Test(tune, counts_a_lost_node_as_lost_memory_if_there_is_only_one_copy)
{
    const struct tune_costs costs = {.step = 1, .stall = 0.01, .drain = 10};
    struct tune_failures failures = rare;
    double lost = tune_advise(&costs, &failures).lost;
    failures.copies = 1;
    cr_assert_gt(tune_advise(&costs, &failures).lost, 5 * lost);
}

/* ---- the simulation -------------------------------------------------------------------------------------------- */

static double next_failure(unsigned short seed[3], double rate)
{
    return -log(1 - erand48(seed)) / rate;
}

/* The share of the time that makes steps which are kept. Failures come at random, each at once followed by a restart,
 * which costs the same at every interval and is left out. A save to storage is there one drain later. */
static double goodput(const struct tune_costs *costs, const struct tune_advice *at)
{
    unsigned short seed[3] = {1, 2, 3};
    double time = 0, survived = next_failure(seed, at->survived), lost = next_failure(seed, at->lost);
    double step = 0, in_memory = 0, on_storage = 0, draining = 0, published_at = INFINITY;
    while (time < 4000 * HOUR) {
        double saved = step + (double)at->mem_steps, end = time + (double)at->mem_steps * costs->step + costs->stall;
        if (published_at <= end) {
            on_storage = draining;
            published_at = INFINITY;
        }
        if (lost < end) { /* goes back to storage */
            time = lost;
            lost += next_failure(seed, at->lost);
            step = in_memory = on_storage;
            published_at = INFINITY;
        } else if (survived < end) {
            time = survived;
            survived += next_failure(seed, at->survived);
            step = in_memory;
        } else {
            time = end;
            step = in_memory = saved;
            if (fmod(step, (double)at->storage_steps) < 0.5 && isinf(published_at)) {
                draining = step;
                published_at = time + costs->drain;
            }
        }
    }
    return step * costs->step / time;
}

/* Other whole intervals, as they might be set by hand. */
static double best_goodput(const struct tune_costs *costs, const struct tune_advice *advice)
{
    static const double factors[] = {0.1, 0.25, 0.5, 0.7, 0.85, 1.2, 1.4, 2, 4, 10};
    double best = 0;
    for (size_t i = 0; i < sizeof(factors) / sizeof(*factors); i++) {
        struct tune_advice at = *advice;
        at.mem_steps = (uint64_t)ceil((double)advice->mem_steps * factors[i]);
        at.storage_steps = (advice->storage_steps + at.mem_steps - 1) / at.mem_steps * at.mem_steps;
        double found = goodput(costs, &at);
        best = found > best ? found : best;
    }
    return best;
}

Test(tune, is_within_one_percent_of_the_best_intervals, .timeout = 300)
{
    static const struct tune_costs costs[] = {{.step = 1, .stall = 0.01, .drain = 30},
                                              {.step = 0.2, .stall = 0.3, .drain = 5},
                                              {.step = 20, .stall = 2, .drain = 300},
                                              {.step = 5, .stall = 30, .drain = 60}};
    static const double node_days[] = {2, 20, 400};
    for (size_t i = 0; i < sizeof(costs) / sizeof(*costs); i++) {
        for (size_t j = 0; j < sizeof(node_days) / sizeof(*node_days); j++) {
            struct tune_failures failures = rare;
            failures.process = failures.node = node_days[j] * DAY;
            failures.memory = 10 * DAY;
            struct tune_advice advice = tune_advise(&costs[i], &failures);
            double own = goodput(&costs[i], &advice), best = best_goodput(&costs[i], &advice);
            cr_assert_geq(own, 0.99 * best, "costs %zu, %g days: %llu steps give %g, the best %g", i, node_days[j],
                          (unsigned long long)advice.mem_steps, own, best);
        }
    }
}

Test(tune, foretells_the_share_of_lost_time)
{
    const struct tune_costs costs = {.step = 1, .stall = 0.05, .drain = 30};
    struct tune_failures failures = rare;
    failures.node = failures.process = 20 * DAY;
    failures.memory = 10 * DAY;
    struct tune_advice advice = tune_advise(&costs, &failures);
    double share = tune_overhead(&costs, &advice), seen = 1 - goodput(&costs, &advice);
    cr_assert_lt(fabs(share - seen), 0.15 * seen, "expected %g, seen %g", share, seen);
}
