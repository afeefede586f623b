/* SPDX-License-Identifier: Apache-2.0
 * This node's part of a drain: which shards it writes, in which order, and which of them are lost with it. */
#ifndef TCK_AGENT_DRAIN_SHARE_H
#define TCK_AGENT_DRAIN_SHARE_H

#include "base/version.h"
#include "core/drain_order.h"

struct term_context;

/* The shards that this node writes of a version, in that order. places has room for all local shards. Returns how many
 * there are. */
uint32_t drain_share(const struct term_context *tc, struct version version, struct drain_place *places);
/* Logs how many of them were written, and which have no copy elsewhere: the agent ends now, before the version was
 * published. */
void drain_warn_unpublished(const struct term_context *tc, struct version version);

#endif
