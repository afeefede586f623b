/* SPDX-License-Identifier: Apache-2.0
 * How many threads of a rank copy, by what it may keep busy. */
#include "client/rank_processors.h"

#include <criterion/criterion.h>

static void expect(struct rank_processors rank, uint32_t save, uint32_t restore)
{
    struct copy_threads threads = copy_threads_for(&rank);
    cr_expect_eq(threads.save, save, "%u save", threads.save);
    cr_expect_eq(threads.restore, restore, "%u restore", threads.restore);
}

Test(rank_processors, are_the_part_of_the_node_of_a_rank_that_is_not_bound)
{
    expect((struct rank_processors){.bound = 48, .online = 48, .quota = UINT32_MAX, .ranks = 4}, 3, 8);
    expect((struct rank_processors){.bound = 0, .online = 48, .quota = UINT32_MAX, .ranks = 8}, 1, 6);
}

Test(rank_processors, are_those_that_a_rank_is_bound_to)
{
    expect((struct rank_processors){.bound = 8, .online = 256, .quota = UINT32_MAX, .ranks = 8}, 2, 8);
    expect((struct rank_processors){.bound = 1, .online = 256, .quota = UINT32_MAX, .ranks = 8}, 1, 1);
}

Test(rank_processors, are_no_more_than_the_part_of_a_quota)
{
    expect((struct rank_processors){.bound = 128, .online = 128, .quota = 16, .ranks = 2}, 2, 8);
    expect((struct rank_processors){.bound = 128, .online = 128, .quota = 16, .ranks = 8}, 1, 2);
    expect((struct rank_processors){.bound = 16, .online = 128, .quota = 16, .ranks = 8}, 1, 2);
    expect((struct rank_processors){.bound = 1, .online = 128, .quota = 16, .ranks = 8}, 1, 1);
}

Test(rank_processors, are_at_least_one_thread_and_at_most_four_and_eight)
{
    expect((struct rank_processors){.bound = 128, .online = 128, .quota = 1, .ranks = 8}, 1, 1);
    expect((struct rank_processors){.bound = 2, .online = 2, .quota = UINT32_MAX, .ranks = 8}, 1, 1);
    expect((struct rank_processors){.bound = 256, .online = 256, .quota = UINT32_MAX, .ranks = 1}, 4, 8);
}
