/* SPDX-License-Identifier: Apache-2.0
 * The estimate and what it governs, against simulated trainings. */
#include "core/inflation.h"

#include "core/pace.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#define STEP_NS 100e6

/* About normal, with mean 0 and deviation 1. */
static double noise(void)
{
    double sum = 0;
    for (int i = 0; i < 12; i++) {
        sum += (double)rand() / RAND_MAX;
    }
    return sum - 6;
}

struct training {
    uint64_t term;
    double cost;      /* inflation at a spread of 1: the cost of a step grows as the spread shrinks */
    double deviation; /* of a step's time, as a part of it */
    double target;
};

/* What a step costs while something is sent. */
static double cost_of(const struct training *t, const struct governor *g)
{
    return t->cost / g->spread;
}

static void train(const struct training *t, struct governor *g, uint64_t from, uint64_t steps)
{
    for (uint64_t step = from; step < from + steps; step++) {
        bool quiet = inflation_window(t->term, step) == WINDOW_QUIET;
        double factor = 1 + t->deviation * noise() + (quiet ? 0 : cost_of(t, g));
        const struct step_seen seen = {
            .step = step, .took_ns = (uint64_t)(STEP_NS * factor), .pending = true, .sent = !quiet};
        governor_step(g, t->term, t->target, &seen);
    }
}

Test(inflation, draws_one_quiet_window_and_one_beside_it_in_each_block)
{
    uint32_t before = 0;
    for (uint64_t block = 0; block < 4000; block++) {
        uint32_t count[3] = {0};
        uint64_t quiet = 0, beside = 0;
        for (uint64_t step = 8 * block; step < 8 * block + 8; step++) {
            enum window window = inflation_window(7, step);
            count[window]++;
            quiet = window == WINDOW_QUIET ? step : quiet;
            beside = window == WINDOW_BESIDE ? step : beside;
        }
        cr_assert(count[WINDOW_QUIET] == 2 && count[WINDOW_BESIDE] == 2);
        cr_assert(quiet == beside + 2 || beside == quiet + 2);
        before += quiet < beside;
    }
    cr_assert(before > 1900 && before < 2100, "which comes first is left to chance: %u of 4000", before);
}

Test(inflation, other_terms_draw_other_windows)
{
    uint32_t same = 0;
    for (uint64_t step = 0; step < 8000; step++) {
        same += inflation_window(1, step) == WINDOW_QUIET && inflation_window(2, step) == WINDOW_QUIET;
    }
    cr_assert(same > 300 && same < 700);
}

Test(inflation, the_interval_is_that_of_students_t)
{
    const double samples[] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct inflation e = inflation_of(samples, 8);
    cr_assert_float_eq(e.mean, 4.5, 1e-9);
    /* s = sqrt(6), t(7) = 2.3646 */
    cr_assert_float_eq(e.high - e.mean, 2.3646 * sqrt(6.0 / 8), 0.01);
    cr_assert_float_eq(e.mean - e.low, e.high - e.mean, 1e-9);
}

Test(inflation, the_interval_holds_the_truth_in_95_of_100_trainings)
{
    uint32_t holds = 0;
    srand(2);
    for (uint64_t term = 1; term <= 2000; term++) {
        double samples[20];
        for (int i = 0; i < 20; i++) {
            samples[i] = 0.03 + 0.05 * noise();
        }
        struct inflation e = inflation_of(samples, 20);
        holds += e.low <= 0.03 && 0.03 <= e.high;
    }
    cr_assert(holds > 1860 && holds < 1940, "%u of 2000", holds);
}

Test(inflation, says_nothing_from_few_pairs)
{
    struct governor g;
    governor_init(&g);
    train(&(struct training){.term = 1, .cost = 0.02, .deviation = 0.01, .target = 0.01}, &g, 8, 8 * 7);
    cr_assert_eq(g.estimate.pairs, 0);
    cr_assert_float_eq(g.spread, PACE_SPREAD_FIRST, 1e-9);
}

Test(inflation, slows_down_what_costs_too_much_as_far_as_the_interval_allows)
{
    struct governor g;
    governor_init(&g);
    train(&(struct training){.term = 1, .cost = 0.1, .deviation = 0.02, .target = 0.01}, &g, 8, 4000);
    cr_assert_float_eq(g.spread, PACE_SPREAD_MAX, 1e-9);
    cr_assert_float_eq(g.estimate.mean, 0.111, 0.02);
    cr_assert_eq(g.estimate.pairs, INFLATION_PAIRS_MAX, "at its end, old samples still count");
    cr_assert_float_eq(g.estimate.quiet_ns, STEP_NS, 0.02 * STEP_NS, "and the time of a step without copies");
}

Test(inflation, speeds_up_what_costs_nothing)
{
    struct governor g;
    governor_init(&g);
    train(&(struct training){.term = 1, .cost = 0, .deviation = 0.01, .target = 0.01}, &g, 8, 8000);
    cr_assert_float_eq(g.spread, PACE_SPREAD_MIN, 1e-9);
}

Test(inflation, changes_nothing_if_steps_are_too_uneven_to_tell)
{
    struct governor g;
    governor_init(&g);
    srand(3);
    for (uint64_t step = 8; step < 2000; step++) {
        bool quiet = inflation_window(1, step) == WINDOW_QUIET;
        bool evaluates = rand() % 20 == 0; /* takes ten times as long */
        double factor = (evaluates ? 10 : 1) * (1 + 0.02 * noise());
        const struct step_seen seen = {
            .step = step, .took_ns = (uint64_t)(STEP_NS * factor), .pending = true, .sent = !quiet};
        governor_step(&g, 1, 0.01, &seen);
    }
    cr_assert_float_eq(g.spread, PACE_SPREAD_FIRST, 1e-9);
}

/* Property: whatever a training's steps are like, the spread stays in its range, and in the end nearly all trainings
 * either meet the target or have the largest spread. */
Test(inflation, meets_the_target_where_the_interval_allows)
{
    uint32_t met = 0, all = 300;
    srand(4);
    for (uint64_t term = 1; term <= all; term++) {
        const struct training t = {.term = term,
                                   .cost = 0.02 * (double)rand() / RAND_MAX,
                                   .deviation = 0.001 + 0.01 * (double)rand() / RAND_MAX,
                                   .target = 0.01};
        struct governor g;
        governor_init(&g);
        for (uint64_t from = 8; from < 8000; from += 8) {
            train(&t, &g, from, 8);
            cr_assert(g.spread >= PACE_SPREAD_MIN && g.spread <= PACE_SPREAD_MAX);
            cr_assert(g.estimate.low <= g.estimate.mean && g.estimate.mean <= g.estimate.high);
        }
        met += cost_of(&t, &g) <= 1.2 * t.target || g.spread >= PACE_SPREAD_MAX;
    }
    cr_assert_geq(met, all * 95 / 100, "%u of %u", met, all);
}

Test(inflation, leaves_out_steps_that_save_and_pairs_that_were_disturbed)
{
    struct governor g;
    governor_init(&g);
    for (uint64_t step = 8; step < 4000; step++) {
        bool quiet = inflation_window(1, step) == WINDOW_QUIET;
        bool saves = step % 5 == 0;
        bool disturbed = step / 8 % 2 == 0; /* sent in the quiet window, since the lane was late */
        double factor = saves ? 3 : quiet && disturbed ? 2 : quiet ? 1 : 1.05;
        const struct step_seen seen = {.step = step,
                                       .took_ns = (uint64_t)(STEP_NS * factor),
                                       .saves = saves,
                                       .pending = true,
                                       .sent = !quiet || disturbed};
        governor_step(&g, 1, 0.5, &seen);
    }
    cr_assert_float_eq(g.estimate.mean, 0.05, 1e-6);
}

Test(inflation, a_window_in_which_nothing_was_left_to_send_is_no_sample)
{
    struct governor g;
    governor_init(&g);
    for (uint64_t step = 8; step < 4000; step++) {
        const struct step_seen seen = {.step = step, .took_ns = (uint64_t)STEP_NS};
        governor_step(&g, 1, 0.01, &seen);
    }
    cr_assert_eq(g.estimate.pairs, 0);
}
