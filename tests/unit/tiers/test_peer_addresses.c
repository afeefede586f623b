/* SPDX-License-Identifier: Apache-2.0
 * The order and the time in which the addresses of a node are tried. */
#include "tiers/peer_addresses.h"

#include <criterion/criterion.h>

#define NOW 1000000

static struct peer_addresses of(uint32_t count)
{
    return (struct peer_addresses){.count = count, .in_use = ADDRESS_NONE};
}

/* The next one, which gives no answer. */
static uint32_t try_next(struct peer_addresses *a, uint64_t now_ms)
{
    uint32_t i = addresses_next(a);
    if (i != ADDRESS_NONE) {
        addresses_try(a, i, now_ms);
        addresses_failed(a, i, now_ms);
    }
    return i;
}

Test(peer_addresses, are_tried_once_each_in_their_order)
{
    struct peer_addresses a = of(3);
    cr_expect_eq(try_next(&a, NOW), 0);
    cr_expect_eq(try_next(&a, NOW), 1);
    cr_expect_eq(try_next(&a, NOW), 2);
    cr_expect_eq(try_next(&a, NOW), ADDRESS_NONE);
    addresses_new_round(&a);
    cr_expect_eq(try_next(&a, NOW), 0);
}

Test(peer_addresses, those_that_fail_come_last_the_longest_untried_first)
{
    struct peer_addresses a = of(3);
    addresses_failed(&a, 0, NOW + 5);
    addresses_failed(&a, 1, NOW);
    addresses_first_round(&a);
    cr_expect_eq(try_next(&a, NOW + 10), 2);
    cr_expect_eq(try_next(&a, NOW + 10), 1);
    cr_expect_eq(try_next(&a, NOW + 10), 0);
}

Test(peer_addresses, one_that_answers_again_has_its_place_again)
{
    struct peer_addresses a = of(2);
    addresses_failed(&a, 0, NOW);
    addresses_first_round(&a);
    cr_expect_eq(addresses_next(&a), 1);
    addresses_answered(&a, 0, NOW + 1);
    cr_expect_eq(addresses_next(&a), 0);
}

/* An agent that is being restarted refuses at all its addresses. */
Test(peer_addresses, one_that_refuses_is_tried_again_for_a_while_and_does_not_fail)
{
    struct peer_addresses a = of(2);
    for (uint64_t ms = 0; ms < 1000; ms += 100) {
        cr_expect_eq(addresses_next(&a), 0);
        addresses_try(&a, 0, NOW + ms);
        addresses_refused(&a, 0, NOW + ms + 1, 1000);
    }
    addresses_refused(&a, 0, NOW + 1000, 1000);
    cr_expect_eq(addresses_next(&a), 1);
    cr_expect_not(a.of[0].failed);
    addresses_first_round(&a);
    addresses_try(&a, 0, NOW + 2000);
    addresses_refused(&a, 0, NOW + 2001, 1000);
    cr_expect_eq(addresses_next(&a), 0, "its time begins again with the round");
    addresses_new_round(&a);
    addresses_try(&a, 0, NOW + 3000);
    addresses_refused(&a, 0, NOW + 3001, 2000);
    cr_expect_eq(addresses_next(&a), 1, "later rounds are not in a hurry");
}

Test(peer_addresses, a_single_one_that_refuses_ends_the_round)
{
    struct peer_addresses a = of(1);
    addresses_try(&a, 0, NOW);
    addresses_refused(&a, 0, NOW, 3000);
    cr_expect_eq(addresses_next(&a), ADDRESS_NONE);
}

Test(peer_addresses, a_change_is_news_once)
{
    struct peer_addresses a = of(2);
    cr_expect_not(addresses_answered(&a, 0, NOW), "it was not known to fail");
    cr_expect(addresses_failed(&a, 0, NOW + 1));
    cr_expect_not(addresses_failed(&a, 0, NOW + 2));
    cr_expect_eq(a.of[0].since_ms, NOW + 1);
    cr_expect(addresses_answered(&a, 0, NOW + 3));
    cr_expect_not(addresses_answered(&a, 0, NOW + 4));
    cr_expect_eq(a.of[0].since_ms, NOW + 3);
}

Test(peer_addresses, a_single_one_has_the_whole_timeout)
{
    struct peer_addresses a = of(1);
    cr_expect_eq(addresses_limit_ms(&a, 3000, 3000), 3000);
    cr_expect_eq(addresses_limit_ms(&a, 500, 2000), 500);
}

/* Otherwise a node would be lost although one of its addresses answers. */
Test(peer_addresses, a_round_ends_before_the_node_is_lost)
{
    static const uint32_t times[][2] = {{3000, 3000}, {500, 2000}, {60000, 60000}};
    for (uint32_t count = 2; count <= ADDRESSES_MAX; count++) {
        struct peer_addresses a = of(count);
        for (size_t t = 0; t < sizeof(times) / sizeof(times[0]); t++) {
            uint32_t limit_ms = addresses_limit_ms(&a, times[t][0], times[t][1]);
            cr_expect_leq(count * limit_ms, times[t][1]);
            cr_expect_leq(limit_ms, times[t][0]);
            cr_expect_gt(limit_ms, 0);
        }
    }
}

/* A node that is only slow, because it is overloaded, is reached in the end. */
Test(peer_addresses, each_later_round_gives_more_time_up_to_the_timeout)
{
    struct peer_addresses a = of(2);
    cr_expect_eq(addresses_limit_ms(&a, 3000, 2000), 1000);
    addresses_new_round(&a);
    cr_expect_eq(addresses_limit_ms(&a, 3000, 2000), 2000);
    for (int i = 0; i < 100; i++) {
        addresses_new_round(&a);
        cr_expect_eq(addresses_limit_ms(&a, 3000, 2000), 3000);
    }
    addresses_first_round(&a);
    cr_expect_eq(addresses_limit_ms(&a, 3000, 2000), 1000);
}

Test(peer_addresses, those_that_no_session_uses_are_checked_now_and_then)
{
    struct peer_addresses a = of(3);
    cr_expect_eq(addresses_to_check(&a, NOW), ADDRESS_NONE, "without a session they are tried anyway");
    a.in_use = 1;
    cr_expect_eq(addresses_to_check(&a, NOW), 0, "it was never tried");
    addresses_answered(&a, 0, NOW);
    cr_expect_eq(addresses_to_check(&a, NOW), 2);
    addresses_failed(&a, 2, NOW + 1);
    cr_expect_eq(addresses_to_check(&a, NOW + ADDRESS_CHECK_MS - 1), ADDRESS_NONE);
    cr_expect_eq(addresses_to_check(&a, NOW + ADDRESS_CHECK_MS), 0);
    cr_expect_eq(addresses_to_check(&a, NOW + ADDRESS_CHECK_MS + 1), 0, "the longest untried first");
}

Test(peer_addresses, an_earlier_one_is_used_again_once_it_has_been_healthy_for_a_while)
{
    struct peer_addresses a = of(3);
    a.in_use = 1;
    cr_expect_eq(addresses_better(&a, NOW), ADDRESS_NONE, "it has never answered");
    addresses_failed(&a, 0, NOW);
    cr_expect_eq(addresses_better(&a, NOW + ADDRESS_HEALTHY_MS), ADDRESS_NONE, "it fails");
    addresses_answered(&a, 0, NOW);
    addresses_answered(&a, 2, NOW);
    cr_expect_eq(addresses_better(&a, NOW + ADDRESS_HEALTHY_MS - 1), ADDRESS_NONE);
    cr_expect_eq(addresses_better(&a, NOW + ADDRESS_HEALTHY_MS), 0);
    a.in_use = 0;
    cr_expect_eq(addresses_better(&a, NOW + ADDRESS_HEALTHY_MS), ADDRESS_NONE, "no later one is better");
}
