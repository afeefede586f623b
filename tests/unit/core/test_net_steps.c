/* SPDX-License-Identifier: Apache-2.0
 * Steps of 480 ms, of which the training uses the network from 300 ms on. */
#include "core/net_steps.h"

#include <criterion/criterion.h>

#define MS      UINT64_C(1000000)
#define STEP    (480 * MS)
#define REDUCES (300 * MS)

/* One step, watched every 2 ms but for a time in which it is hidden. Returns when the next one begins. */
static uint64_t step(struct net_steps *s, uint64_t at, uint64_t from, uint64_t hidden_to)
{
    net_steps_begin(s, at, STEP);
    for (uint64_t t = 0; t < STEP; t += 2 * MS) {
        if (t >= hidden_to) {
            net_steps_note(s, at + t, at + t + 2 * MS - 1, t >= from);
        }
    }
    return at + STEP;
}

static uint64_t steps(struct net_steps *s, uint64_t at, int count)
{
    for (int i = 0; i < count; i++) {
        at = step(s, at, REDUCES, 0);
    }
    return at;
}

Test(net_steps, knows_nothing_at_first)
{
    struct net_steps s = {0};
    cr_assert_not(net_steps_busy(&s, 400 * MS, MS));
    uint64_t at = steps(&s, MS, 3);
    net_steps_begin(&s, at, STEP);
    cr_assert_not(net_steps_busy(&s, at + 350 * MS, MS), "three steps may be chance");
}

Test(net_steps, finds_the_time_at_which_the_training_uses_the_network)
{
    struct net_steps s = {0};
    uint64_t at = steps(&s, MS, 20);
    net_steps_begin(&s, at, STEP);
    cr_assert_not(net_steps_busy(&s, at, 100 * MS));
    cr_assert_not(net_steps_busy(&s, at + 200 * MS, 90 * MS));
    cr_assert(net_steps_busy(&s, at + 200 * MS, 110 * MS), "its end is in the all-reduce");
    cr_assert(net_steps_busy(&s, at + 350 * MS, MS));
}

Test(net_steps, a_gap_in_one_steps_traffic_changes_nothing)
{
    struct net_steps s = {0};
    uint64_t at = steps(&s, MS, 20);
    at = step(&s, at, 400 * MS, 0);
    net_steps_begin(&s, at, STEP);
    cr_assert(net_steps_busy(&s, at + 320 * MS, 20 * MS));
}

Test(net_steps, one_unusual_step_of_many_does_not_count)
{
    struct net_steps s = {0};
    uint64_t at = steps(&s, MS, 15);
    at = step(&s, at, 50 * MS, 0);
    at = steps(&s, at, 15);
    net_steps_begin(&s, at, STEP);
    cr_assert_not(net_steps_busy(&s, at + 100 * MS, 100 * MS));
}

Test(net_steps, what_is_hidden_is_not_taken_for_unused)
{
    struct net_steps s = {0};
    uint64_t at = MS;
    for (int i = 0; i < 24; i++) {
        at = i % 4 == 0 ? step(&s, at, 100 * MS, 0) : step(&s, at, 100 * MS, 200 * MS);
    }
    net_steps_begin(&s, at, STEP);
    cr_assert(net_steps_busy(&s, at + 150 * MS, 10 * MS));
}

Test(net_steps, follows_a_training_that_changes)
{
    struct net_steps s = {0};
    uint64_t at = steps(&s, MS, 40);
    for (int i = 0; i < 32; i++) {
        at = step(&s, at, 400 * MS, 0);
    }
    net_steps_begin(&s, at, STEP);
    cr_assert_not(net_steps_busy(&s, at + 320 * MS, 20 * MS));
}

Test(net_steps, steps_of_another_length_are_learned_again)
{
    struct net_steps s = {0};
    uint64_t at = steps(&s, MS, 20);
    net_steps_begin(&s, at, 2 * STEP);
    cr_assert_not(net_steps_busy(&s, at + 350 * MS, MS));
}

Test(net_steps, does_not_guess_when_the_step_has_begun)
{
    struct net_steps s = {0};
    uint64_t at = steps(&s, MS, 20);
    net_steps_pause(&s);
    net_steps_note(&s, at, at + MS, true);
    cr_assert_not(net_steps_busy(&s, at + 350 * MS, MS));
    net_steps_begin(&s, at + STEP, STEP);
    cr_assert(net_steps_busy(&s, at + STEP + 350 * MS, MS), "what was learned is still known");
    cr_assert_not(net_steps_busy(&s, at + STEP + 10 * MS, MS));
}
