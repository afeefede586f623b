/* SPDX-License-Identifier: Apache-2.0
 * The histogram of stalls. */
#include "base/stall.h"

#include <criterion/criterion.h>

Test(stall, is_counted_in_the_bucket_whose_bound_it_does_not_exceed)
{
    struct stall_board board = {0};
    struct stalls sum = {0};
    stall_board_add(&board, 0);
    stall_board_add(&board, 100000);
    stall_board_add(&board, 100001);
    stall_board_add(&board, 3600000000000);
    stalls_add_board(&sum, &board);
    cr_assert_eq(sum.buckets[0], 2);
    cr_assert_eq(sum.buckets[1], 1);
    cr_assert_eq(sum.buckets[STALL_BUCKETS - 1], 1);
    cr_assert_eq(sum.total_ns, 3600000200001);
}

Test(stall, is_summed_over_trainers)
{
    struct stall_board boards[2] = {0};
    struct stalls sum = {0};
    stall_board_add(&boards[0], 700);
    stall_board_add(&boards[1], 300);
    stalls_add_board(&sum, &boards[0]);
    stalls_add_board(&sum, &boards[1]);
    cr_assert_eq(sum.buckets[0], 2);
    cr_assert_eq(sum.total_ns, 1000);
}

Test(stall, has_growing_bounds)
{
    for (unsigned i = 1; i < STALL_BUCKETS; i++) {
        cr_assert_gt(stall_bound_us(i), stall_bound_us(i - 1));
    }
}
