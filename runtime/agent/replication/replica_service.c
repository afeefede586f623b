/* SPDX-License-Identifier: Apache-2.0
 * Copies that other agents store in this node's slots or fetch from them: the node machine decides, the peer tier moves
 * the bytes. */
#include "agent/replication/replica_service.h"

#include "agent/driver/protocol_driver.h"
#include "agent/driver/slot_ops.h"
#include "agent/driver/term_context.h"
#include "agent/replication/fetch.h"
#include "agent/replication/peer_rpc.h"
#include "agent/state/hard_state.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "tiers/memory.h"

#include <inttypes.h>

/* The sender must be able to tell a holder that has no slot, for which others have to be freed, from one that cannot
 * take the copy for another reason. */
static tck_status_t status_of(enum refusal refusal)
{
    return refusal == REFUSAL_NO_SLOT || refusal == REFUSAL_MEMORY ? TCK_ERR_NOSPC : TCK_ERR_BUSY;
}

enum refusal replica_refusal(tck_status_t answer)
{
    if (answer == TCK_ERR_CORRUPT) {
        return REFUSAL_CORRUPT;
    }
    if (answer == TCK_ERR_DENIED) {
        return REFUSAL_TERM_CLOSED;
    }
    return answer == TCK_ERR_NOSPC ? REFUSAL_NO_SLOT : REFUSAL_HOLDER_LOST;
}

tck_status_t replica_handle_offer(const struct replica_setup *replicas, struct peer *from,
                                  const struct peer_offer *offer, struct tier_item *item, struct error *err)
{
    struct term_context *tc = rpc_term_context(replicas->rpc, from, offer->term);
    if (tc == NULL && offer->term < hard_state_get(replicas->state)->term.adopted) {
        return error_set(err, TCK_ERR_DENIED, "%s", refusal_text(REFUSAL_TERM_CLOSED));
    }
    if (tc == NULL || slot_ops_memory(replicas->slot_ops) !=
                          MEMORY_STEADY) { /* an agent that has just restarted resumes its term soon */
        return error_set(err, TCK_ERR_BUSY, "%s", refusal_text(REFUSAL_NOT_JOINED));
    }
    uint32_t local_shard = term_context_shard(tc, offer->shard);
    if (local_shard == NONE32 ||
        segment_info(tc->local_shards[local_shard].segment).image_bytes != offer->image_bytes) {
        return error_set(err, TCK_ERR_NOENT, "%s", refusal_text(REFUSAL_NOT_A_HOLDER));
    }
    struct event event = {.type = EVENT_OFFER,
                          .node = rpc_node_of(tc, from),
                          .shard = tc->shards[local_shard].world_shard,
                          .version = offer->version,
                          .root = offer->root,
                          .base = offer->base,
                          .base_root = offer->base_root};
    struct node_answer answer = driver_ask_node(tc, &event);
    if (answer.given && answer.action.type == ACTION_ACK_OFFER) {
        return TCK_ERR_EXIST;
    }
    if (!answer.given || answer.action.type != ACTION_STORE) {
        return error_set(err, status_of(answer.action.refusal), "%s", refusal_text(answer.action.refusal));
    }
    uint32_t k;
    struct local_shard *d = term_context_slot(tc, answer.action.slot, &k);
    *item = (struct tier_item){.version = offer->version,
                               .shard = offer->shard,
                               .image_bytes = offer->image_bytes,
                               .image = segment_image(d->segment, k),
                               .crcs = segment_crcs(d->segment, k),
                               .root = offer->root};
    if (answer.action.base_slot != NONE32) {
        d = term_context_slot(tc, answer.action.base_slot, &k);
        item->base_image = segment_image(d->segment, k);
    }
    slot_op_begin(replicas->slot_ops);
    return TCK_OK;
}

tck_status_t replica_handle_stored(const struct replica_setup *replicas, struct peer *from,
                                   const struct peer_offer *offer, const struct error *outcome)
{
    (void)from;
    struct term_context *tc = *replicas->term;
    uint32_t local_shard = tc != NULL ? term_context_shard(tc, offer->shard) : NONE32;
    uint32_t slot = local_shard == NONE32 ? NONE32 : node_slot_of(tc->node, local_shard, offer->version);
    struct node_answer answer = {0};
    failpoint(copy, whole);
    if (slot != NONE32) {
        struct event event = {.type = EVENT_VERIFIED,
                              .slot = slot,
                              .version = offer->version,
                              .root = offer->root,
                              .ok = outcome->code == TCK_OK,
                              .refusal = outcome->code == TCK_ERR_CORRUPT ? REFUSAL_CORRUPT : REFUSAL_HOLDER_LOST};
        answer = driver_ask_node(tc, &event);
    }
    if (outcome->code == TCK_ERR_CANCELED) {
        log_info("copy of version %" PRIu64 ".%" PRIu64 " from node %s is canceled: %s", offer->version.term,
                 offer->version.step, peer_node(from)->name, outcome->text);
    } else if (outcome->code != TCK_OK) {
        log_warn("copy of version %" PRIu64 ".%" PRIu64 " from node %s is incomplete: %s", offer->version.term,
                 offer->version.step, peer_node(from)->name, outcome->text);
    }
    slot_op_end(replicas->slot_ops);
    if (answer.given && answer.action.type == ACTION_ACK_OFFER) {
        return TCK_OK;
    }
    return answer.action.refusal == REFUSAL_CORRUPT ? TCK_ERR_CORRUPT
                                                    : TCK_ERR_CANCELED; /* or its version has been superseded */
}

/* Once a base was found to be damaged, its slot holds no copy any longer. */
bool replica_base_is_bad(const struct replica_setup *replicas, const struct tier_item *item, uint32_t chunk,
                         struct segment **segment_out, uint32_t *k_out, struct error *err)
{
    struct segment *segment = memory_find(replicas->memory, item->shard);
    for (uint32_t k = 0; segment != NULL && k < segment_info(segment).slot_count; k++) {
        bool held = segment_header(segment, k)->state == SLOT_VERIFIED;
        if (held && segment_image(segment, k) == item->base_image) {
            *segment_out = segment;
            *k_out = k;
            return segment_verify_chunk(segment, k, chunk, err) == TCK_ERR_CORRUPT;
        }
    }
    return false;
}

/* The slot of a segment whose header says that it holds this version; NONE32 if none. */
static uint32_t slot_with(const struct segment *segment, struct version version)
{
    for (uint32_t k = 0; k < segment_info(segment).slot_count; k++) {
        const struct slot_header *h = segment_header(segment, k);
        if (h->state == SLOT_VERIFIED && version_is(h->version, version)) {
            return k;
        }
    }
    return NONE32;
}

/* The slot is found by its address, because its version may have been dropped in the meantime, or even be in another
 * slot. */
static void pin(const struct replica_setup *replicas, const struct tier_item *item, enum event_type type)
{
    struct term_context *tc = *replicas->term;
    uint32_t local_shard = tc != NULL ? term_context_shard(tc, item->shard) : NONE32;
    for (uint32_t k = 0; local_shard != NONE32 && k < tc->shards[local_shard].slot_count; k++) {
        if (segment_image(tc->local_shards[local_shard].segment, k) == item->image) {
            struct event event = {.type = type, .slot = tc->local_shards[local_shard].first_slot + k};
            driver_step_node(tc, &event);
        }
    }
}

/* One that is whole, or one that is still arriving. */
static bool find_copy(const struct replica_setup *replicas, const struct peer *from, const struct peer_offer *want,
                      struct tier_item *item)
{
    struct segment *segment = memory_find(replicas->memory, want->shard);
    uint32_t k = segment != NULL ? slot_with(segment, want->version) : NONE32;
    if (k == NONE32) {
        return replicas->fetches != NULL && fetch_lend(replicas->fetches, want, peer_node(from)->agent_id, item);
    }
    *item = (struct tier_item){.version = want->version,
                               .shard = want->shard,
                               .image_bytes = segment_info(segment).image_bytes,
                               .image = segment_image(segment, k),
                               .crcs = segment_crcs(segment, k),
                               .root = segment_header(segment, k)->root};
    return true;
}

tck_status_t replica_handle_pull(const struct replica_setup *replicas, struct peer *from, const struct peer_offer *want,
                                 struct tier_item *item, struct error *err)
{
    if (want->term < hard_state_get(replicas->state)->term.adopted) {
        rpc_send_stale(replicas->rpc, from);
        return error_set(err, TCK_ERR_DENIED, "%s", refusal_text(REFUSAL_TERM_CLOSED));
    }
    if (slot_ops_memory(replicas->slot_ops) != MEMORY_STEADY || !find_copy(replicas, from, want, item)) {
        return error_set(err, TCK_ERR_NOENT, "node %s does not hold that copy", replicas->config->node);
    }
    failpoint(copy, pulled);
    pin(replicas, item, EVENT_PIN);
    slot_op_begin(replicas->slot_ops);
    return TCK_OK;
}

void replica_pull_done(const struct replica_setup *replicas, struct peer *from, const struct tier_item *item)
{
    (void)from;
    pin(replicas, item, EVENT_UNPIN);
    if (replicas->fetches != NULL) {
        fetch_returned(replicas->fetches, item);
    }
    slot_op_end(replicas->slot_ops);
}
