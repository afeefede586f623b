/* SPDX-License-Identifier: Apache-2.0
 * Copies that other agents store in this node's slots or fetch from them: the node machine decides, the peer tier moves
 * the bytes. */
#ifndef TCK_AGENT_REPLICA_SERVICE_H
#define TCK_AGENT_REPLICA_SERVICE_H

#include "core/protocol.h"
#include "tiers/peer.h"

struct config;
struct fetches;
struct hard_state;
struct memory;
struct rpc;
struct segment;
struct slot_ops;
struct term_context;

/* Dependencies. */
struct replica_setup {
    const struct config *config;
    const struct hard_state *state;
    const struct memory *memory;
    struct term_context *const *term; /* the current term */
    struct slot_ops *slot_ops;
    struct rpc *rpc;
    struct fetches *fetches; /* what arrives here is passed on; NULL: not yet */
};

/* What a holder has answered to an offer, as a refusal. */
enum refusal replica_refusal(tck_status_t answer);

/* Callbacks of the peer tier (tiers/peer.h). */
tck_status_t replica_handle_offer(const struct replica_setup *replicas, struct peer *from,
                                  const struct peer_offer *offer, struct tier_item *item_out, struct error *err);
tck_status_t replica_handle_stored(const struct replica_setup *replicas, struct peer *from,
                                   const struct peer_offer *offer, const struct error *outcome);
/* A chunk of an offered copy does not match what its base has. Whether the base is damaged: then it is slot *k_out of
 * *segment_out, and err says so. */
bool replica_base_is_bad(const struct replica_setup *replicas, const struct tier_item *item, uint32_t chunk,
                         struct segment **segment_out, uint32_t *k_out, struct error *err);
tck_status_t replica_handle_pull(const struct replica_setup *replicas, struct peer *from, const struct peer_offer *want,
                                 struct tier_item *item_out, struct error *err);
void replica_pull_done(const struct replica_setup *replicas, struct peer *from, const struct tier_item *item);

#endif
