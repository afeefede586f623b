/* SPDX-License-Identifier: Apache-2.0
 * The conditions for a node that is down to count as lost. */
#include "core/node_loss.h"

#include <criterion/criterion.h>

#define SINCE 5000

static struct node_absence down(void)
{
    return (struct node_absence){.since_ms = SINCE, .peer_timeout_ms = NODE_BACK_MS / 2};
}

Test(node_loss, a_node_that_is_up_is_not_lost)
{
    struct node_absence there = down();
    there.since_ms = 0;
    cr_assert_eq(node_loss_judge(&there, SINCE + NODE_BACK_MS), NODE_LOSS_NONE);
}

Test(node_loss, its_agent_has_time_to_restart)
{
    struct node_absence a = down();
    cr_assert_eq(node_loss_judge(&a, SINCE + NODE_BACK_MS - 1), NODE_LOSS_NONE);
    cr_assert_eq(node_loss_judge(&a, SINCE + NODE_BACK_MS), NODE_LOSS_REPORT);
}

Test(node_loss, a_longer_peer_timeout_also_gives_more_time_to_return)
{
    struct node_absence a = down();
    a.peer_timeout_ms = 3 * NODE_BACK_MS;
    cr_assert_eq(node_loss_judge(&a, SINCE + a.peer_timeout_ms - 1), NODE_LOSS_NONE);
    cr_assert_eq(node_loss_judge(&a, SINCE + a.peer_timeout_ms), NODE_LOSS_REPORT);
}

Test(node_loss, an_absence_may_begin_later)
{
    struct node_absence a = down();
    cr_assert_eq(node_loss_judge(&a, SINCE - 1000), NODE_LOSS_NONE);
}

Test(node_loss, ends_the_trainers_if_so_configured)
{
    struct node_absence a = down();
    a.on_node_loss = ON_NODE_LOSS_END_TRAINERS;
    cr_assert_eq(node_loss_judge(&a, SINCE + NODE_BACK_MS - 1), NODE_LOSS_NONE);
    cr_assert_eq(node_loss_judge(&a, SINCE + NODE_BACK_MS), NODE_LOSS_END_TRAINERS);
}

Test(node_loss, is_acted_on_once)
{
    struct node_absence a = down();
    a.acted = true;
    cr_assert_eq(node_loss_judge(&a, SINCE + NODE_BACK_MS), NODE_LOSS_NONE);
}

Test(node_loss, a_longer_peer_timeout_is_the_time_to_return)
{
    cr_assert_eq(node_loss_back_ms(NODE_BACK_MS / 2), NODE_BACK_MS);
    cr_assert_eq(node_loss_back_ms(3 * NODE_BACK_MS), 3 * NODE_BACK_MS);
}
