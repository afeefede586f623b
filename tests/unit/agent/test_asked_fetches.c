/* SPDX-License-Identifier: Apache-2.0
 * The fetches of a recovery that have no outcome yet. */
#include "agent/recovery/asked_fetches.h"

#include <criterion/criterion.h>

#define MANY 1000u

static struct asked_fetches asked;

static void add(uint64_t number, uint32_t node)
{
    struct asked_fetch fetch = {.number = number, .action = {.node = node, .shard = (uint32_t)number}};
    cr_assert(asked_add(&asked, &fetch));
}

/* The numbers without an outcome, newest first, as the digits of one decimal number. */
static uint64_t listed(void)
{
    struct asked_fetch x = {.number = UINT64_MAX};
    uint64_t all = 0;
    while (asked_before(&asked, x.number, &x)) {
        all = 10 * all + x.number;
    }
    return all;
}

static void tear_down(void)
{
    asked_free(&asked);
}

TestSuite(asked_fetches, .fini = tear_down);

Test(asked_fetches, an_empty_list_has_nothing)
{
    cr_assert_not(asked_take(&asked, 1, 0));
    cr_assert_eq(listed(), 0);
}

Test(asked_fetches, an_outcome_counts_once_and_for_its_node_alone)
{
    add(5, 3);
    cr_assert_not(asked_take(&asked, 5, 2));
    cr_assert_not(asked_take(&asked, 4, 3));
    cr_assert_not(asked_take(&asked, 6, 3));
    cr_assert(asked_take(&asked, 5, 3));
    cr_assert_not(asked_take(&asked, 5, 3));
}

Test(asked_fetches, are_listed_newest_first_without_those_that_have_an_outcome)
{
    for (uint32_t i = 1; i <= 6; i++) {
        add(i, i);
    }
    cr_assert_eq(listed(), 654321);
    cr_assert(asked_take(&asked, 6, 6));
    cr_assert(asked_take(&asked, 3, 3));
    cr_assert_eq(listed(), 5421);
    cr_assert(asked_take(&asked, 1, 1));
    cr_assert_eq(listed(), 542);
    add(8, 8);
    cr_assert_eq(listed(), 8542);
}

Test(asked_fetches, a_list_may_change_during_an_iteration)
{
    struct asked_fetch x = {.number = UINT64_MAX};
    for (uint32_t i = 1; i <= MANY; i++) {
        add(i, 0);
    }
    for (uint32_t i = MANY; i >= 1; i--) {
        cr_assert(asked_before(&asked, x.number, &x));
        cr_assert_eq(x.number, i);
        cr_assert_eq(x.action.shard, i);
        if (i % 3 != 0) {
            cr_assert(asked_take(&asked, i, 0));
        }
    }
    cr_assert_not(asked_before(&asked, x.number, &x));
}

Test(asked_fetches, each_of_many_is_found_in_any_order)
{
    for (uint32_t i = 0; i < MANY; i++) {
        add(10 + 2 * i, i);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t k = i * 7 % MANY; /* each of them once */
        cr_assert(asked_take(&asked, 10 + 2 * k, k));
    }
    cr_assert_eq(listed(), 0);
    cr_assert_eq(asked.count, 0);
}
