/* SPDX-License-Identifier: Apache-2.0
 * Which of several nodes is slow, and in which order they are shown. */
#include "cli/peer_rates.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct peer_rate measured(const char *node, double rate)
{
    struct peer_rate r = {.state = RATE_MEASURED, .rate = rate};
    snprintf(r.node, sizeof(r.node), "%s", node);
    return r;
}

static struct peer_rate without(const char *node, enum peer_rate_state state)
{
    struct peer_rate r = measured(node, 0);
    r.state = state;
    return r;
}

static bool is_slow(const struct peer_rate *rates, size_t count, const char *node)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(rates[i].node, node) == 0) {
            return rates[i].slow;
        }
    }
    cr_assert_fail("no node %s", node);
    return false;
}

Test(peer_rates, less_than_half_of_the_median_is_slow)
{
    struct peer_rate rates[] = {measured("a", 100), measured("b", 49), measured("c", 110), measured("d", 50),
                                measured("e", 100)};
    cr_expect_eq(peer_rates_judge(rates, 5), 100);
    cr_expect(is_slow(rates, 5, "b"));
    cr_expect_not(is_slow(rates, 5, "d"), "it has exactly half");
    cr_expect_not(is_slow(rates, 5, "a"));
}

Test(peer_rates, of_two_nodes_the_slower_one_is_compared_with_the_faster_one)
{
    struct peer_rate rates[] = {measured("a", 1000), measured("b", 10)};
    cr_expect_eq(peer_rates_judge(rates, 2), 1000);
    cr_expect(is_slow(rates, 2, "b"));
    cr_expect_not(is_slow(rates, 2, "a"));
}

Test(peer_rates, one_rate_alone_is_not_slow)
{
    struct peer_rate rates[] = {without("a", RATE_UNREACHABLE), measured("b", 1), without("c", RATE_UNKNOWN)};
    cr_expect_eq(peer_rates_judge(rates, 3), 1);
    cr_expect_not(is_slow(rates, 3, "b"));
}

Test(peer_rates, only_measured_ones_count_for_the_median)
{
    struct peer_rate rates[] = {without("a", RATE_UNREACHABLE), without("b", RATE_UNREACHABLE), measured("c", 90),
                                without("d", RATE_UNKNOWN), measured("e", 100)};
    cr_expect_eq(peer_rates_judge(rates, 5), 100);
    for (size_t i = 0; i < 5; i++) {
        cr_expect_not(rates[i].slow);
    }
    cr_expect_eq(peer_rates_judge(rates, 2), 0, "nothing was measured");
    cr_expect_eq(peer_rates_judge(rates, 0), 0);
}

Test(peer_rates, what_needs_attention_comes_first)
{
    static const char *const wanted[] = {"gone1", "gone2", "slow", "a", "b", "fast", "busy"};
    struct peer_rate rates[] = {
        measured("fast", 9), without("busy", RATE_UNKNOWN), without("gone2", RATE_UNREACHABLE), measured("b", 5),
        measured("a", 5),    measured("slow", 1),           without("gone1", RATE_UNREACHABLE)};
    peer_rates_sort(rates, 7);
    for (size_t i = 0; i < 7; i++) {
        cr_expect_str_eq(rates[i].node, wanted[i]);
    }
}

static bool are_tcp(const char *first, const char *second)
{
    struct peer_rate rates[] = {measured("a", 1), measured("b", 1)};
    snprintf(rates[0].transports, sizeof(rates[0].transports), "%s", first);
    snprintf(rates[1].transports, sizeof(rates[1].transports), "%s", second);
    return peer_rates_are_tcp(rates, 2);
}

Test(peer_rates, everything_goes_over_tcp_only_if_that_is_known)
{
    cr_expect(are_tcp("tcp/eth0", "tcp/eth0 tcp/eth1"));
    cr_expect(are_tcp("tcp/eth0", ""));
    cr_expect_not(are_tcp("", ""));
    cr_expect_not(are_tcp("tcp/eth0", "rc_mlx5/mlx5_0:1"));
    cr_expect_not(are_tcp("tcp/ib0 rc_verbs/mlx5_0:1", ""));
    cr_expect_not(are_tcp("tcpx/eth0", ""));
}
