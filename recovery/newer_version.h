/* SPDX-License-Identifier: Apache-2.0
 * Whether a version that is newer than the newest known commit may have been committed. */
#ifndef TCK_RECOVERY_NEWER_VERSION_H
#define TCK_RECOVERY_NEWER_VERSION_H

#include "recovery/plan.h"

/* Only the coordinator that commits a version is certain to know of it, and it may be lost. What is left of a version
 * tells whether it was protected: then each node that has a part of it has a copy of each shard of which it has one of
 * the newest known commit. If one lacks such a copy, the version was not committed.
 *
 * If none lacks any, nodes may give up their copies of the known commit rather than those of this version: a loss that
 * it survives is survived by this version, too. */
bool newer_may_be_committed(const struct plan_input *input, struct version version);

#endif
