/* SPDX-License-Identifier: Apache-2.0
 * With which nodes a node needs sessions in its term. Pure. */
#ifndef TCK_RECOVERY_SESSIONS_H
#define TCK_RECOVERY_SESSIONS_H

#include "core/node.h"
#include "recovery/placement.h"

enum session_use {
    SESSION_NONE,
    SESSION_MESSAGES, /* with the coordinator: messages may be passed on by another node */
    SESSION_COPIES,
};

/* A node needs sessions with the coordinator, with the nodes that it sends copies to, and with those that it holds
 * copies for; the coordinator needs them with all nodes. Others are opened when a recovery needs them. wanted: one
 * entry per node, setup.node_count of them; the node's own entry is meaningless. */
void sessions_wanted(const struct node_setup *setup, const struct placement *placement, bool coordinates,
                     enum session_use *wanted);

#endif
