/* SPDX-License-Identifier: Apache-2.0
 * Finds the copies of the committed version that this node should have but does not. */
#ifndef TCK_AGENT_MISSING_COPIES_H
#define TCK_AGENT_MISSING_COPIES_H

#include "agent/driver/term.h"

struct slot_ops;

/* The version of which every node that owns or holds a shard should have a copy; VERSION_NONE: none yet. */
struct version copy_due(const struct term_context *tc);
/* copy_is_due: this node should have a copy of this shard; copy_is_here: it has one of this version. */
bool copy_is_due(const struct term_context *tc, uint32_t local_shard);
bool copy_is_here(const struct term_context *tc, uint32_t local_shard, struct version version);
/* The number of copies missing on this node in this term; 0 if tc is NULL. */
uint64_t copies_missing(const struct slot_ops *slot_ops, const struct term_context *tc);

#endif
