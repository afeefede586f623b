/* SPDX-License-Identifier: Apache-2.0
 * Which steps are due. */
#include "client/interval.h"

#include <criterion/criterion.h>

static struct shared_status shared;
static struct pacer pacer;

Test(interval, of_zero_never_saves)
{
    for (uint64_t step = 0; step < 100; step++) {
        cr_assert_eq(pacer_due(&pacer, &shared, step), TCK_DUE_NOTHING);
    }
}

Test(interval, in_steps_saves_at_its_multiples)
{
    shared.mem_interval_steps = 10;
    shared.storage_interval_steps = 20;
    cr_assert_eq(pacer_due(&pacer, &shared, 10), TCK_DUE_MEMORY);
    cr_assert_eq(pacer_due(&pacer, &shared, 11), TCK_DUE_NOTHING);
    cr_assert_eq(pacer_due(&pacer, &shared, 20), TCK_DUE_STORAGE);
}

Test(interval, does_not_save_step_0)
{
    shared.mem_interval_steps = 10;
    cr_assert_eq(pacer_due(&pacer, &shared, 0), TCK_DUE_NOTHING);
}

Test(interval, target_step_is_saved_too)
{
    shared.mem_target_step = 7;
    shared.storage_target_step = 9;
    cr_assert_eq(pacer_due(&pacer, &shared, 6), TCK_DUE_NOTHING);
    cr_assert_eq(pacer_due(&pacer, &shared, 7), TCK_DUE_MEMORY);
    cr_assert_eq(pacer_due(&pacer, &shared, 9), TCK_DUE_STORAGE);
}

Test(interval, change_holds_from_its_step_on)
{
    shared.mem_interval_steps = 10;
    cr_assert_eq(pacer_due(&pacer, &shared, 100), TCK_DUE_MEMORY);
    shared.interval_from_step = 120;
    shared.mem_interval_steps = 7;
    cr_assert_eq(pacer_due(&pacer, &shared, 105), TCK_DUE_NOTHING, "105 is a multiple of 7 only");
    cr_assert_eq(pacer_due(&pacer, &shared, 110), TCK_DUE_MEMORY);
    cr_assert_eq(pacer_due(&pacer, &shared, 126), TCK_DUE_MEMORY);
    cr_assert_eq(pacer_due(&pacer, &shared, 130), TCK_DUE_NOTHING);
}

Test(interval, tick_publishes_the_step_and_its_smoothed_time)
{
    pacer_tick(&pacer, &shared, 1, 1000);
    cr_assert_eq(shared.current_step, 1);
    cr_assert_eq(shared.step_ns, 0, "one call does not make a step");
    for (uint64_t step = 2; step < 200; step++) {
        pacer_tick(&pacer, &shared, step, step * 8000);
    }
    cr_assert_eq(shared.current_step, 199);
    cr_assert_eq(shared.step_at_ns, 199 * 8000);
    cr_assert_leq(shared.step_ns, 8100);
    cr_assert_geq(shared.step_ns, 7900);
}
