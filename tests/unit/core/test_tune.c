/* SPDX-License-Identifier: Apache-2.0
 * The advice on intervals, checked against a simulation of trainings that fail at random. */
#include "core/tune.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#define HOUR 3600.0
#define DAY  (24 * HOUR)

static const struct tune_failures rare = {
    .nodes = 64, .copies = 2, .process = 500 * DAY, .node = 500 * DAY, .several = 5000 * DAY, .all = 90 * DAY};

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

Test(tune, counts_several_nodes_as_lost_memory_where_they_may_have_all_copies)
{
    const struct tune_costs costs = {.step = 1, .stall = 0.01, .drain = 10};
    struct tune_failures failures = rare, never = rare;
    never.several = INFINITY;
    double all = tune_advise(&costs, &never).lost, of_several = failures.nodes / failures.several / 2;
    cr_assert_float_eq(tune_advise(&costs, &failures).lost - all, of_several * 2 / 63, 1e-3 * of_several,
                       "64 pairs of 64 * 63 / 2 have both copies of a shard");
    cr_assert_float_eq(tune_advise_copies(&costs, &failures, 3).lost, all, 1e-6 * all);
    failures.nodes = never.nodes = 2;
    cr_assert_float_eq(tune_advise(&costs, &failures).lost, tune_advise(&costs, &never).lost + 1 / failures.several,
                       1e-6 * of_several, "the two nodes have all copies");
}

Test(tune, a_single_node_has_no_copies_elsewhere)
{
    const struct tune_costs costs = {.step = 1, .stall = 0.01, .drain = 10};
    struct tune_failures one = rare, alone = rare;
    one.nodes = alone.nodes = alone.copies = 1;
    cr_assert_float_eq(tune_advise(&costs, &one).lost, 1 / rare.node + 1 / rare.all, 1e-15);
    cr_assert_eq(tune_advise(&costs, &one).survived, tune_advise(&costs, &alone).survived);
    cr_assert_eq(tune_copies(&costs, &one), 1);
}

Test(tune, advises_the_fewest_copies_that_lose_little)
{
    const struct tune_costs costs = {.step = 1, .stall = 0.01, .commit = 0.5, .drain = 100};
    struct tune_failures failures = rare;
    failures.node = failures.several = 50000 * DAY;
    cr_assert_eq(tune_copies(&costs, &failures), 2, "no node fails, but one that does should not need storage");
    failures.several = DAY;
    cr_assert_eq(tune_copies(&costs, &failures), 3, "two nodes fail at once");
    failures.nodes = 2;
    cr_assert_eq(tune_copies(&costs, &failures), 2, "there is no third node");
}

Test(tune, more_copies_take_longer_to_make)
{
    const struct tune_costs costs = {.step = 1, .stall = 1e-6, .commit = 5, .drain = 10};
    cr_assert_eq(tune_advise_copies(&costs, &rare, 2).mem_steps, 10);
    cr_assert_eq(tune_advise_copies(&costs, &rare, 3).mem_steps, 20);
}

Test(tune, saves_no_more_often_than_copies_are_made)
{
    struct tune_costs costs = {.step = 1, .commit = 20};
    cr_assert_eq(tune_advise(&costs, &rare).mem_steps, 40);
    costs.commit = 0.1;
    cr_assert_eq(tune_advise(&costs, &rare).mem_steps, 1);
}

Test(tune, what_is_counted_outweighs_what_is_assumed_as_it_grows)
{
    struct tune_failures assumed = tune_assumed(64, 2);
    struct tune_counts none = {0};
    cr_assert_eq(tune_counted(&assumed, &none).node, assumed.node);
    struct tune_counts quiet = {.node_seconds = 99 * assumed.node};
    cr_assert_float_eq(tune_counted(&assumed, &quiet).node, 100 * assumed.node, 1);
    struct tune_counts failing = {.nodes = 9, .several = 1, .restarts = 99, .node_seconds = 64 * DAY};
    struct tune_failures counted = tune_counted(&assumed, &failing);
    cr_assert_float_eq(counted.node, (assumed.node + 64 * DAY) / 10, 1);
    cr_assert_float_eq(counted.process, (assumed.process + 64 * DAY) / 100, 1);
    cr_assert_float_eq(counted.several, (assumed.several + 64 * DAY) / 3, 1, "two nodes");
    cr_assert_eq(counted.all, assumed.all);
    cr_assert_eq(counted.nodes, 64);
}

/* ---- intervals that are chosen while the job runs ---------------------------------------------------------------- */

static const struct tune_costs usual = {.step = 0.5, .stall = 0.002, .commit = 0.2, .drain = 60};
static const struct tune_intervals automatic = {
    .mem_steps = 10, .storage_steps = 100, .mem_auto = true, .storage_auto = true};

Test(tune, automatic_intervals_become_the_advised_ones)
{
    struct tune_advice advice = tune_advise(&usual, &rare);
    struct tune_intervals chosen = tune_choose(&automatic, &usual, &rare);
    cr_assert_eq(chosen.mem_steps, advice.mem_steps);
    cr_assert_eq(chosen.storage_steps, advice.storage_steps);
    cr_assert(chosen.mem_auto && chosen.storage_auto);
}

Test(tune, intervals_that_are_not_automatic_stay)
{
    struct tune_intervals fixed = {.mem_steps = 7, .storage_steps = 11}, half = fixed;
    struct tune_intervals chosen = tune_choose(&fixed, &usual, &rare);
    cr_assert_eq(chosen.mem_steps, 7);
    cr_assert_eq(chosen.storage_steps, 11);
    half.storage_auto = true;
    chosen = tune_choose(&half, &usual, &rare);
    cr_assert_eq(chosen.mem_steps, 7);
    cr_assert_eq(chosen.storage_steps % 7, 0);
    cr_assert_geq((double)chosen.storage_steps * usual.step, 120);
}

Test(tune, nothing_changes_before_its_cost_is_known)
{
    struct tune_costs unknown = usual;
    unknown.drain = 0;
    cr_assert_eq(tune_choose(&automatic, &unknown, &rare).storage_steps, 100);
    unknown.commit = 0;
    cr_assert_eq(tune_choose(&automatic, &unknown, &rare).mem_steps, 10);
    unknown = usual;
    unknown.step = 0;
    struct tune_intervals chosen = tune_choose(&automatic, &unknown, &rare);
    cr_assert_eq(chosen.mem_steps, 10);
    cr_assert_eq(chosen.storage_steps, 100);
}

Test(tune, an_automatic_interval_of_storage_is_a_multiple_of_that_of_memory)
{
    struct tune_intervals near = automatic;
    near.mem_steps = 95;
    near.mem_auto = false;
    struct tune_costs costs = usual;
    costs.drain = 25;
    cr_assert_eq(tune_choose(&near, &costs, &rare).storage_steps, 190, "100 is near, and not a multiple");
    near.mem_steps = 0;
    cr_assert_eq(tune_choose(&near, &costs, &rare).storage_steps, 100, "of no interval");
}

Test(tune, noise_changes_nothing)
{
    struct tune_intervals chosen = tune_choose(&automatic, &usual, &rare);
    for (double factor = 0.8; factor < 1.2; factor += 0.05) {
        struct tune_costs costs = usual;
        costs.stall *= factor;
        struct tune_intervals next = tune_choose(&chosen, &costs, &rare);
        cr_assert_eq(next.mem_steps, chosen.mem_steps, "at %g", factor);
    }
}

Test(tune, automatic_intervals_keep_to_their_longest_time)
{
    struct tune_intervals bounded = automatic;
    bounded.mem_seconds = 3;
    bounded.storage_seconds = 30;
    struct tune_costs costs = usual;
    costs.stall = 100;
    struct tune_intervals chosen = tune_choose(&bounded, &costs, &rare);
    cr_assert_eq(chosen.mem_steps, 6);
    cr_assert_eq(chosen.storage_steps, 60);
    bounded.mem_steps = 7;
    bounded.storage_steps = 61;
    chosen = tune_choose(&bounded, &costs, &rare);
    cr_assert_eq(chosen.mem_steps, 6, "7 is near, and too long");
    cr_assert_eq(chosen.storage_steps, 60);
    bounded.storage_seconds = 5;
    cr_assert_eq(tune_choose(&bounded, &costs, &rare).storage_steps, 6, "12 would be too long");
    bounded.mem_seconds = 0.001;
    cr_assert_eq(tune_choose(&bounded, &costs, &rare).mem_steps, 1, "shorter than a step");
}

/* ---- the simulation -------------------------------------------------------------------------------------------- */

static double next_failure(unsigned short seed[3], double rate)
{
    return -log(1 - erand48(seed)) / rate;
}

enum { PROCESS, NODE, SEVERAL, ALL, CLASSES };

/* Nodes 0 to count - 1 stand in a ring, each with the copies of its shard on the nodes that follow it. */
static bool pair_has_all_copies(unsigned short seed[3], uint32_t nodes, uint32_t copies)
{
    uint32_t one = (uint32_t)(erand48(seed) * nodes),
             other = (one + 1 + (uint32_t)(erand48(seed) * (nodes - 1))) % nodes;
    uint32_t apart = one > other ? one - other : other - one;
    return copies < 2 || (copies == 2 && (apart == 1 || apart == nodes - 1));
}

static bool memory_survives(unsigned short seed[3], const struct tune_failures *f, int class)
{
    return class == PROCESS || (class == NODE && f->copies > 1) ||
           (class == SEVERAL && !pair_has_all_copies(seed, f->nodes, f->copies));
}

struct failing {
    unsigned short seed[3];
    double rate[CLASSES], next[CLASSES]; /* when the next failure of a class comes */
};

static struct failing begin_failing(const struct tune_failures *f)
{
    struct failing out = {.seed = {1, 2, 3},
                          .rate = {[PROCESS] = f->nodes / f->process,
                                   [NODE] = f->nodes / f->node,
                                   [SEVERAL] = f->nodes / f->several / 2, /* two nodes each time */
                                   [ALL] = 1 / f->all}};
    for (int class = 0; class < CLASSES; class ++) {
        out.next[class] = next_failure(out.seed, out.rate[class]);
    }
    return out;
}

static int first_class(const struct failing *f)
{
    int first = 0;
    for (int class = 1; class < CLASSES; class ++) {
        first = f->next[class] < f->next[first] ? class : first;
    }
    return first;
}

/* The share of the time that makes steps which are kept. Failures come at random, each at once followed by a restart,
 * which costs the same at every interval and is left out, but for reading from storage. A save to storage is there one
 * drain later. */
static double goodput(const struct tune_costs *costs, const struct tune_failures *failures,
                      const struct tune_advice *at)
{
    struct failing failing = begin_failing(failures);
    double time = 0, step = 0, in_memory = 0, on_storage = 0, draining = 0, published_at = INFINITY;
    while (time < 4000 * HOUR) {
        double saved = step + (double)at->mem_steps, end = time + (double)at->mem_steps * costs->step + costs->stall;
        int class = first_class(&failing);
        if (published_at <= end) {
            on_storage = draining;
            published_at = INFINITY;
        }
        if (failing.next[class] < end) {
            time = failing.next[class];
            failing.next[class] += next_failure(failing.seed, failing.rate[class]);
            if (!memory_survives(failing.seed, failures, class)) {
                in_memory = on_storage;
                published_at = INFINITY;
                time += costs->drain;
            }
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

/* Other whole intervals, as they might be set by hand: each of memory with each of storage, and each number of copies.
 * None goes to storage more often than it takes, or to memory than copies are made. */
static double best_goodput(const struct tune_costs *costs, const struct tune_failures *failures)
{
    static const double factors[] = {0.4, 0.7, 1, 1.5, 3}, storage_factors[] = {1, 2};
    double best = 0;
    for (uint32_t copies = 1; copies <= 3; copies++) {
        struct tune_failures with = *failures;
        struct tune_advice advice = tune_advise_copies(costs, failures, copies);
        with.copies = copies;
        for (size_t i = 0; i < 5 * 2; i++) {
            struct tune_advice at = advice;
            at.mem_steps = (uint64_t)ceil((double)advice.mem_steps * factors[i % 5]);
            at.storage_steps = (uint64_t)ceil((double)advice.storage_steps * storage_factors[i / 5]);
            at.storage_steps = (at.storage_steps + at.mem_steps - 1) / at.mem_steps * at.mem_steps;
            double found = goodput(costs, &with, &at);
            best = found > best ? found : best;
        }
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
            failures.several = 10 * node_days[j] * DAY;
            failures.all = 10 * DAY;
            uint32_t copies = failures.copies = tune_copies(&costs[i], &failures);
            struct tune_advice advice = tune_advise(&costs[i], &failures);
            double own = goodput(&costs[i], &failures, &advice), best = best_goodput(&costs[i], &failures);
            cr_assert_geq(own, 0.99 * best, "costs %zu, %g days: %u copies and %llu steps give %g, the best %g", i,
                          node_days[j], copies, (unsigned long long)advice.mem_steps, own, best);
        }
    }
}

Test(tune, foretells_the_share_of_lost_time)
{
    const struct tune_costs costs = {.step = 1, .stall = 0.05, .drain = 30};
    struct tune_failures failures = rare;
    failures.node = failures.process = 20 * DAY;
    failures.several = 200 * DAY;
    failures.all = 10 * DAY;
    struct tune_advice advice = tune_advise(&costs, &failures);
    double share = tune_overhead(&costs, &advice), seen = 1 - goodput(&costs, &failures, &advice);
    cr_assert_lt(fabs(share - seen), 0.15 * seen, "expected %g, seen %g", share, seen);
}

/* Whatever interval a training begins with, the chosen one is as good as the best, by the failures that come. */
Test(tune, automatic_intervals_are_within_one_percent_of_the_best, .timeout = 300)
{
    static const uint64_t first[] = {1, 10, 100000};
    struct tune_failures failures = rare;
    failures.process = failures.node = 20 * DAY;
    failures.all = 10 * DAY;
    double best = best_goodput(&usual, &failures);
    for (size_t i = 0; i < sizeof(first) / sizeof(*first); i++) {
        struct tune_intervals begun = automatic;
        begun.mem_steps = begun.storage_steps = first[i];
        struct tune_intervals chosen = tune_choose(&begun, &usual, &failures);
        struct tune_advice at = tune_advise(&usual, &failures);
        at.mem_steps = chosen.mem_steps;
        at.storage_steps = chosen.storage_steps;
        cr_assert_geq(goodput(&usual, &failures, &at), 0.99 * best, "begun with %llu", (unsigned long long)first[i]);
    }
}
