/* SPDX-License-Identifier: Apache-2.0
 * Fetches one shard of one version into a slot of this node when the coordinator's recovery asks for it: from this
 * node's memory (verified), another agent's, or storage. */
#ifndef TCK_AGENT_FETCH_H
#define TCK_AGENT_FETCH_H

#include "agent/state/context.h"

void fetch_handle_ask(struct term_context *tc, const struct wire_fetch *ask);
/* A fetch of this node's own accord: its end is reported to scrub_repaired, not to the coordinator. */
void fetch_repair(struct term_context *tc, const struct wire_fetch *ask);
struct fetch_tally fetch_tally(const struct term_context *tc, struct version version);
/* Queued fetches whose source came up or went down. */
void fetch_peer_changed(struct agent *agent, struct peer *peer);
void fetch_tick(struct agent *agent);
void fetch_reset(struct agent *agent);

#endif
