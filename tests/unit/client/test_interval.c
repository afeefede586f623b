/* SPDX-License-Identifier: Apache-2.0
 * Which steps are due. */
#include "client/interval.h"

#include <criterion/criterion.h>

static struct board board;
static struct pacer pacer;

Test(interval, of_zero_never_saves)
{
    for (uint64_t step = 0; step < 100; step++) {
        cr_assert_eq(pacer_due(&pacer, &board, step), DUE_NOTHING);
    }
}

Test(interval, in_steps_saves_at_its_multiples)
{
    board.mem_interval_steps = 10;
    board.storage_interval_steps = 20;
    cr_assert_eq(pacer_due(&pacer, &board, 10), DUE_MEMORY);
    cr_assert_eq(pacer_due(&pacer, &board, 11), DUE_NOTHING);
    cr_assert_eq(pacer_due(&pacer, &board, 20), DUE_STORAGE);
}

Test(interval, does_not_save_step_0)
{
    board.mem_interval_steps = 10;
    cr_assert_eq(pacer_due(&pacer, &board, 0), DUE_NOTHING);
}

Test(interval, target_step_is_saved_too)
{
    board.mem_target_step = 7;
    board.storage_target_step = 9;
    cr_assert_eq(pacer_due(&pacer, &board, 6), DUE_NOTHING);
    cr_assert_eq(pacer_due(&pacer, &board, 7), DUE_MEMORY);
    cr_assert_eq(pacer_due(&pacer, &board, 9), DUE_STORAGE);
}

Test(interval, change_holds_from_its_step_on)
{
    board.mem_interval_steps = 10;
    cr_assert_eq(pacer_due(&pacer, &board, 100), DUE_MEMORY);
    board.interval_from_step = 120;
    board.mem_interval_steps = 7;
    cr_assert_eq(pacer_due(&pacer, &board, 105), DUE_NOTHING, "105 is a multiple of 7 only");
    cr_assert_eq(pacer_due(&pacer, &board, 110), DUE_MEMORY);
    cr_assert_eq(pacer_due(&pacer, &board, 126), DUE_MEMORY);
    cr_assert_eq(pacer_due(&pacer, &board, 130), DUE_NOTHING);
}

Test(interval, tick_tells_the_step_and_its_smoothed_time)
{
    pacer_tick(&pacer, &board, 1, 1000);
    cr_assert_eq(board.current_step, 1);
    cr_assert_eq(board.step_ns, 0, "one call does not make a step");
    for (uint64_t step = 2; step < 200; step++) {
        pacer_tick(&pacer, &board, step, step * 8000);
    }
    cr_assert_eq(board.current_step, 199);
    cr_assert_leq(board.step_ns, 8100);
    cr_assert_geq(board.step_ns, 7900);
}
