/* SPDX-License-Identifier: Apache-2.0
 * Divides the nodes of a world into groups. */
#include "core/tree.h"

/* The square root of the number of nodes beside the coordinator's, rounded up. */
static uint32_t group_nodes(uint32_t node_count)
{
    uint32_t nodes = 1;
    while ((uint64_t)nodes * nodes < node_count - 1) {
        nodes++;
    }
    return nodes;
}

bool tree_has_leaders(uint32_t node_count, uint32_t from_nodes)
{
    return from_nodes > 0 && node_count >= from_nodes && node_count > 1;
}

uint32_t tree_leader(uint32_t node_count, uint32_t node, uint32_t from_nodes)
{
    if (node == 0 || !tree_has_leaders(node_count, from_nodes)) {
        return NONE32;
    }
    uint32_t leader = node - (node - 1) % group_nodes(node_count);
    return leader == node ? NONE32 : leader;
}

uint32_t tree_led(uint32_t node_count, uint32_t node, uint32_t from_nodes)
{
    if (node == 0 || !tree_has_leaders(node_count, from_nodes) || tree_leader(node_count, node, from_nodes) != NONE32) {
        return 1;
    }
    uint32_t nodes = group_nodes(node_count), left = node_count - node;
    return nodes < left ? nodes : left;
}
