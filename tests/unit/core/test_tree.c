/* SPDX-License-Identifier: Apache-2.0
 * Which nodes lead groups in a large world. */
#include "core/tree.h"

#include <criterion/criterion.h>

#define FROM 64

Test(tree, a_small_world_has_no_leaders)
{
    for (uint32_t n = 0; n < FROM - 1; n++) {
        cr_assert_eq(tree_leader(FROM - 1, n, FROM), NONE32);
        cr_assert_eq(tree_led(FROM - 1, n, FROM), 1);
    }
    cr_expect(tree_has_leaders(FROM, FROM));
    cr_expect_not(tree_has_leaders(FROM, 0));
    cr_expect_not(tree_has_leaders(1, 1));
    cr_expect_eq(tree_leader(2, 1, 1), NONE32);
}

Test(tree, the_first_node_of_a_group_leads_it)
{
    /* {1, 2, 3}, {4, 5, 6}, {7} */
    static const uint32_t leaders[] = {NONE32, NONE32, 1, 1, NONE32, 4, 4, NONE32};
    static const uint32_t led[] = {1, 3, 1, 1, 3, 1, 1, 1};
    for (uint32_t n = 0; n < 8; n++) {
        cr_expect_eq(tree_leader(8, n, 8), leaders[n], "node %u", n);
        cr_expect_eq(tree_led(8, n, 8), led[n], "node %u", n);
    }
}

/* What the coordinator and a leader are connected with. */
Test(tree, few_nodes_are_connected_with_any)
{
    static const uint32_t worlds[] = {64, 65, 66, 100, 1000, 2048, 4097, 16384};
    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
        uint32_t nodes = worlds[i], leaders = 0, members = 0;
        for (uint32_t n = 1; n < nodes; n++) {
            uint32_t led = tree_led(nodes, n, FROM);
            cr_assert_leq((uint64_t)(led - 1) * (led - 1), nodes);
            leaders += tree_leader(nodes, n, FROM) == NONE32;
            members += led - 1;
        }
        cr_assert_leq((uint64_t)(leaders - 1) * (leaders - 1), nodes, "%u leaders of %u nodes", leaders, nodes);
        cr_assert_eq(leaders + members, nodes - 1);
    }
}
