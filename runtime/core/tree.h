/* SPDX-License-Identifier: Apache-2.0
 * Through which node a node exchanges messages with the coordinator of a large world, so that the coordinator's agent
 * has connections with few of them. Pure.
 *
 * All nodes but the coordinator's are divided into groups of about as many as there are groups, by their numbers. The
 * first node of a group is its leader: it is connected with the coordinator and passes on the messages of the others.
 * That is all it does. A member whose leader cannot be reached is connected with the coordinator directly. */
#ifndef TCK_CORE_TREE_H
#define TCK_CORE_TREE_H

#include "core/protocol.h"

/* The leader of this node; NONE32: none, since it is the coordinator's or a leader itself, or because the world has
 * fewer than from_nodes nodes. from_nodes 0: no world has leaders. */
uint32_t tree_leader(uint32_t node_count, uint32_t node, uint32_t from_nodes);
bool tree_has_leaders(uint32_t node_count, uint32_t from_nodes);
/* How many nodes, beginning with this one, are of its group if it is a leader; 1 if it is not, or leads itself alone.
 */
uint32_t tree_led(uint32_t node_count, uint32_t node, uint32_t from_nodes);

#endif
