/* SPDX-License-Identifier: Apache-2.0
 * Whether a version that is newer than the newest known commit may have been committed. */
#ifndef TCK_RECOVERY_NEWER_VERSION_H
#define TCK_RECOVERY_NEWER_VERSION_H

#include "recovery/plan.h"

/* Only the coordinator that commits a version is certain to know of the commit, and it may be lost. So the copies that
 * are left are compared with those of the newest known commit. If a node has a copy of a shard of that commit and none
 * of this version's, the answer is false: this version survives fewer losses than the commit, which it must not
 * replace.
 *
 * If the answer is true, nodes may give up their copies of the known commit rather than those of this version: every
 * loss that leaves the known commit complete leaves this version complete, too. */
bool newer_may_be_committed(const struct plan_input *input, struct version version);

#endif
