/* SPDX-License-Identifier: Apache-2.0
 * With which nodes a node needs sessions in its term. Pure. */
#ifndef TCK_RECOVERY_SESSIONS_H
#define TCK_RECOVERY_SESSIONS_H

#include "core/node.h"
#include "recovery/placement.h"

/* With the coordinator, with those that this node sends copies to, and with those it holds copies for; the coordinator
 * with all. Others are met when a recovery needs them. wanted: by node, setup.node_count of them; what it says of the
 * node itself means nothing. */
void sessions_wanted(const struct node_setup *setup, const struct placement *placement, bool coordinates, bool *wanted);

#endif
