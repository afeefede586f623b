/* SPDX-License-Identifier: Apache-2.0
 * What an agent reports about the nodes of its term. */
#include "agent/driver/term.h"
#include "agent/report/report.h"

#include <criterion/criterion.h>

static struct peer *peers[2]; /* node 1 has no session */
static struct lost_node losses[2];

static struct term_context in_a_term(void)
{
    return (struct term_context){.self = 0, .peers = peers, .lost = losses};
}

Test(report, a_coordinator_has_lost_the_nodes_without_a_session)
{
    struct term_context tc = in_a_term();
    cr_assert_eq(report_node_state(&tc, 0), NODE_SELF);
    cr_assert_eq(report_node_state(&tc, 1), NODE_NOT_CONNECTED);
    tc.coordinator = (struct coordinator *)&losses; /* any */
    cr_assert_eq(report_node_state(&tc, 1), NODE_LOST);
}

/* The sessions of a term end with it. */
Test(report, no_node_is_lost_because_the_term_is_over)
{
    struct term_context tc = in_a_term();
    tc.coordinator = (struct coordinator *)&losses;
    tc.closed = true;
    cr_assert_eq(report_node_state(&tc, 1), NODE_NOT_CONNECTED);
}
