/* SPDX-License-Identifier: Apache-2.0
 * Which agents of earlier terms are remembered: all that may have a copy of what could be needed. */
#include "recovery/known_nodes.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#define V(t, s) ((struct version){.term = (t), .step = (s)})
#define MANY    1000

static struct known_node known(uint64_t agent_id, uint64_t term)
{
    struct known_node k = {.node = {.agent_id = agent_id}, .term = term};
    snprintf(k.node.name, sizeof(k.node.name), "node%llu", (unsigned long long)agent_id);
    return k;
}

/* Agents 1 to MANY; agent i was a member last in term i. */
static struct known_node *replaced_nodes(void)
{
    struct known_node *nodes = calloc(MANY, sizeof(*nodes));
    cr_assert_not_null(nodes);
    for (uint64_t i = 0; i < MANY; i++) {
        nodes[i] = known(i + 1, i + 1);
    }
    return nodes;
}

static bool has(const struct known_node *nodes, size_t count, uint64_t agent_id)
{
    for (size_t i = 0; i < count; i++) {
        if (nodes[i].node.agent_id == agent_id) {
            return true;
        }
    }
    return false;
}

Test(known_nodes, those_of_the_time_before_the_base_are_forgotten_once_there_is_a_commit)
{
    struct known_node *nodes = replaced_nodes();
    struct known_nodes_term term = {.base = V(901, 5), .committed = V(MANY + 1, 6)};
    size_t kept = known_nodes_keep(&term, nodes, MANY);

    cr_assert_eq(kept, 100 + KNOWN_NODES_KEPT);
    for (uint64_t agent = 1; agent <= MANY; agent++) {
        cr_assert_eq(has(nodes, kept, agent), agent >= 901 - KNOWN_NODES_KEPT, "agent %llu", (unsigned long long)agent);
        cr_assert(has(nodes, MANY, agent), "none is lost from the list itself");
    }
    free(nodes);
}

Test(known_nodes, the_list_stops_growing)
{
    struct known_node *nodes = calloc(2 * MANY, sizeof(*nodes));
    size_t count = 0;
    cr_assert_not_null(nodes);
    for (uint64_t t = 2; t < 2 * MANY; t++) { /* in each term another node is replaced */
        struct known_nodes_term term = {.base = V(t - 1, 1), .committed = V(t, 2)};
        nodes[count++] = known(t, t);
        count = known_nodes_keep(&term, nodes, count);
        cr_assert_leq(count, KNOWN_NODES_KEPT + 2);
    }
    free(nodes);
}

/* It may have the only copy of a shard of the base: nothing newer is complete anywhere. */
Test(known_nodes, none_is_forgotten_before_the_term_has_a_commit)
{
    struct known_node *nodes = replaced_nodes();
    struct known_nodes_term restored = {.base = V(901, 5)}, began = {.committed = V(MANY + 1, 6)}, none = {0};
    struct known_nodes_term same = {.base = V(901, 5), .committed = V(901, 5)};

    cr_assert_eq(known_nodes_keep(&restored, nodes, MANY), MANY);
    cr_assert_eq(known_nodes_keep(&began, nodes, MANY), MANY, "a fresh start, or a base that was lost");
    cr_assert_eq(known_nodes_keep(&none, nodes, MANY), MANY);
    cr_assert_eq(known_nodes_keep(&same, nodes, MANY), MANY);
    free(nodes);
}

Test(known_nodes, members_are_kept_whatever_term_is_noted_for_them)
{
    struct known_node *nodes = replaced_nodes();
    struct node_info members[] = {nodes[2].node, nodes[5].node};
    struct known_nodes_term term = {
        .members = members, .member_count = 2, .base = V(MANY, 5), .committed = V(MANY + 1, 6)};
    size_t kept = known_nodes_keep(&term, nodes, MANY);

    cr_assert_eq(kept, 3 + KNOWN_NODES_KEPT);
    cr_assert(has(nodes, kept, 3) && has(nodes, kept, 6) && has(nodes, kept, MANY));
    cr_assert_not(has(nodes, kept, 4));
    free(nodes);
}

/* A node that was replaced under its own name is another agent. */
Test(known_nodes, a_member_is_known_by_its_agent)
{
    struct known_node *nodes = replaced_nodes();
    struct node_info member = nodes[2].node;
    member.agent_id = MANY + 7;
    struct known_nodes_term term = {
        .members = &member, .member_count = 1, .base = V(MANY, 5), .committed = V(MANY + 1, 6)};
    size_t kept = known_nodes_keep(&term, nodes, MANY);

    cr_assert_not(has(nodes, kept, 3));
    free(nodes);
}

/* A step was chosen that is older than the newest commit: nodes with newer versions are still needed. */
Test(known_nodes, an_older_base_keeps_more)
{
    struct known_node *nodes = replaced_nodes();
    struct known_nodes_term term = {.base = V(300, 5), .committed = V(MANY + 1, 6)};

    cr_assert_eq(known_nodes_keep(&term, nodes, MANY), MANY - 299 + KNOWN_NODES_KEPT);
    free(nodes);
}

Test(known_nodes, an_empty_list_stays_empty)
{
    struct known_nodes_term term = {.base = V(300, 5), .committed = V(MANY + 1, 6)};
    struct known_node none = {0};

    cr_assert_eq(known_nodes_keep(&term, &none, 0), 0);
}
