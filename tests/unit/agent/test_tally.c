/* SPDX-License-Identifier: Apache-2.0
 * What an agent counts: how long saves take, and how often the job was started again. */
#include "agent/tally.h"

#include <criterion/criterion.h>

#define NODES 3

static struct node_info nodes[NODES + 1];
static uint32_t by_agent[NODES];

/* A world of the agents first, first + 1 and first + 2. */
static struct world world_of(uint64_t term, uint64_t first)
{
    struct world world = {.term = term, .node_count = NODES, .nodes = nodes, .by_agent = by_agent};
    for (uint32_t n = 0; n < NODES; n++) {
        nodes[n].agent_id = first + n;
        by_agent[n] = n;
    }
    return world;
}

Test(tally, a_save_takes_until_it_is_committed)
{
    struct tally tally = {0};
    tally_save_begun(&tally, (struct version){1, 10}, 1000);
    tally_save_begun(&tally, (struct version){1, 10}, 1400); /* by another rank */
    tally_committed(&tally, (struct version){1, 10}, 1500);
    cr_assert_eq(tally.saves_begun, 2);
    cr_assert_eq(tally.commit_ms, 501);
    tally_save_begun(&tally, (struct version){1, 20}, 2000);
    tally_committed(&tally, (struct version){1, 10}, 2001);
    cr_assert_eq(tally.commit_ms, 501, "that of another version says nothing");
    tally_committed(&tally, (struct version){1, 20}, 9000);
    cr_assert_eq(tally.commit_ms, 501, "it was throttled");
    tally_save_begun(&tally, (struct version){1, 30}, 9100);
    tally_committed(&tally, (struct version){1, 30}, 9199);
    cr_assert_eq(tally.commit_ms, 100);
}

Test(tally, a_start_with_the_same_agents_is_a_restart)
{
    struct tally tally = {0};
    struct world first = world_of(1, 100), second = first;
    second.term = 2;
    tally_joined(&tally, NULL, &first, 1000);
    cr_assert_eq(tally.restarts, 0);
    tally_joined(&tally, &first, &second, 5000);
    cr_assert_eq(tally.restarts, 1);
    cr_assert_eq(tally.node_losses, 0);
    cr_assert_eq(tally.several_losses, 0);
    cr_assert_eq(tally_node_ms(&tally, NODES, 6000), NODES * 5000);
}

/* Of a term whose agents begin at `first`, followed by one whose agents begin at 100. */
static struct tally replaced(uint64_t first)
{
    static struct node_info old_nodes[NODES];
    struct tally tally = {0};
    struct world next = world_of(2, 100), old = next;
    for (uint32_t n = 0; n < NODES; n++) {
        old_nodes[n].agent_id = first + n;
    }
    old.term = 1;
    old.nodes = old_nodes;
    tally_joined(&tally, NULL, &old, 0);
    tally_joined(&tally, &old, &next, 1000);
    return tally;
}

Test(tally, an_agent_that_the_next_term_does_not_have_was_a_node_that_was_lost)
{
    struct tally tally = replaced(99);
    cr_assert_eq(tally.node_losses, 1);
    cr_assert_eq(tally.several_losses, 0);
    cr_assert_eq(tally.restarts, 0);
}

Test(tally, agents_that_the_next_term_does_not_have_were_lost_at_once)
{
    struct tally tally = replaced(98);
    cr_assert_eq(tally.node_losses, 0);
    cr_assert_eq(tally.several_losses, 1);
    cr_assert_eq(tally.restarts, 0);
}

Test(tally, a_term_that_an_agent_resumes_is_no_restart)
{
    struct tally tally = {0};
    struct world world = world_of(3, 100);
    tally_joined(&tally, &world, &world, 1000);
    cr_assert_eq(tally.restarts, 0);
    cr_assert_eq(tally_node_ms(&tally, NODES, 2000), NODES * 1000);
}
