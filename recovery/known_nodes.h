/* SPDX-License-Identifier: Apache-2.0
 * Which agents of earlier terms are still remembered. Replaced nodes never come back, so without an end the list would
 * grow with each of them. */
#ifndef TCK_RECOVERY_KNOWN_NODES_H
#define TCK_RECOVERY_KNOWN_NODES_H

#include "base/version.h"
#include "base/world.h"

#include <stddef.h>

#define KNOWN_NODES_KEPT 256 /* of those that are no longer needed: some may still have an old version */

/* What this term has restored and committed. */
struct known_nodes_term {
    const struct node_info *members;
    uint32_t member_count;
    struct version base;      /* VERSION_NONE: nothing, or it was lost */
    struct version committed; /* VERSION_NONE: nothing yet */
};

/* Sorts the nodes so that those to be forgotten are at the end, and returns how many come before them.
 *
 * A node is kept if it is a member, and if it was a member in the base's term or later, so that it may have a copy of
 * the base. Once this term has committed a version, all others have only versions that are older than the base, which
 * members free, too (decision_fate); of them the KNOWN_NODES_KEPT that were members last are kept. Without a commit or
 * a base, all nodes are kept, and also if memory is short. */
size_t known_nodes_keep(const struct known_nodes_term *term, struct known_node *nodes, size_t count);

#endif
