/* SPDX-License-Identifier: Apache-2.0
 * Copies that other agents store in this node's slots or fetch from them: the node machine decides, the peer tier moves
 * the bytes. */
#ifndef TCK_AGENT_REPLICA_SERVICE_H
#define TCK_AGENT_REPLICA_SERVICE_H

#include "agent/state/context.h"

/* Callbacks of the peer tier (tiers/peer.h). */
tck_status_t replica_handle_offer(void *ctx, struct peer *from, const struct peer_offer *offer,
                                  struct tier_item *item_out, struct error *err);
tck_status_t replica_handle_stored(void *ctx, struct peer *from, const struct peer_offer *offer,
                                   const struct error *outcome);
tck_status_t replica_handle_pull(void *ctx, struct peer *from, const struct peer_offer *want,
                                 struct tier_item *item_out, struct error *err);
void replica_pull_done(void *ctx, struct peer *from, const struct tier_item *item);

#endif
