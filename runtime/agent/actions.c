/* SPDX-License-Identifier: Apache-2.0
 * Carries out the actions of the protocol's machines. Those that take time (digests, transfers) end as events. */
#include "agent/actions.h"

#include "agent/drain/drain.h"
#include "agent/driver/moving.h"
#include "agent/driver/protocol_driver.h"
#include "agent/driver/slot_ops.h"
#include "agent/driver/term_context.h"
#include "agent/ipc/ipc_server.h"
#include "agent/pace/pacing.h"
#include "agent/parts.h"
#include "agent/peer_messages.h"
#include "agent/replication/comparison.h"
#include "agent/replication/peer_rpc.h"
#include "agent/replication/replica_service.h"
#include "agent/replication/slot_digest.h"
#include "agent/storage/health.h"
#include "agent/storage/metadata_writer.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/message.h"
#include "tiers/peer.h"
#include "tiers/segment.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- slots --------------------------------------------------------------------------------------------------- */

/* The trainer that fills a slot. A slot in quarantine keeps its writer, which may still be copying. */
static struct slot_writer writer_of(const struct term_context *tc, const struct slot *slot, struct slot_writer before)
{
    if (slot->state == SLOT_QUARANTINED) {
        return before;
    }
    uint32_t local = tc->shards[slot->shard].storing_rank;
    if (slot->state != SLOT_FILLING || local == NONE32) {
        return (struct slot_writer){0};
    }
    const struct client *client = client_of_rank(tc->needs.agent->clients, tc->world.term, tc->ranks[local]);
    return (struct slot_writer){.process = client != NULL ? client->process : (struct process){0},
                                .rank = tc->ranks[local]};
}

static void write_header(struct term_context *tc, const struct action *a)
{
    uint32_t k;
    struct local_shard *d = term_context_slot(tc, a->slot, &k);
    const struct slot *slot = node_slot(tc->node, a->slot);
    const struct decision *decision = node_decision(tc->node);
    struct slot_header header = *segment_header(d->segment, k);
    header.state = slot->state;
    header.version = slot->version;
    header.root = slot->root;
    header.layout = tc->world.layout;
    header.to_storage = slot->to_storage;
    header.writer = writer_of(tc, slot, header.writer);
    header.committed = slot->state == SLOT_VERIFIED && decision_fate(decision, slot->version) == FATE_COMMITTED;
    if (slot->state == SLOT_FREE) {
        failpoint(slot, freeing);
    }
    segment_write_header(d->segment, k, &header);
}

/* The digests of a slot, and the event at their end. */
struct digest_op {
    struct slot_digest digest; /* the first member: digest_done */
    struct moving moving;
    struct term_context *tc;
    uint32_t slot;
    struct version version;
    struct sealed sealed;
};

/* A trainer with records on devices may have computed the digests there; the copy must match them. */
static bool matches_device_digests(const struct digest_op *op)
{
    const struct sealed *sealed = &op->sealed;
    if (!sealed->has_root || !version_is(sealed->version, op->version) || hash128_is(sealed->root, op->digest.root)) {
        return true;
    }
    log_error("version %" PRIu64 ".%" PRIu64
              ": slot %u does not match the digests that its trainer's device computed: the copy was damaged in "
              "transit or in memory",
              op->version.term, op->version.step, op->slot);
    return false;
}

static void digest_done(struct chunk_jobs *jobs, bool canceled)
{
    struct digest_op *op = (struct digest_op *)jobs;
    struct slot_ops *slot_ops = op->tc->needs.agent->slot_ops;
    struct event event = {.type = EVENT_VERIFIED,
                          .slot = op->slot,
                          .version = op->version,
                          .root = op->digest.root,
                          .ok = !canceled && matches_device_digests(op),
                          .refusal = canceled ? REFUSAL_RANK_LOST : REFUSAL_NONE};
    op->tc->needs.agent->tally.digested_bytes += event.ok ? op->digest.image_bytes : 0;
    moving_end(&op->moving);
    driver_step_node(op->tc, &event);
    free(op);
    slot_op_end(slot_ops);
}

static void verify(struct term_context *tc, const struct action *a)
{
    uint32_t k;
    struct local_shard *d = term_context_slot(tc, a->slot, &k);
    struct digest_op *op = calloc(1, sizeof(*op));
    slot_op_begin(tc->needs.agent->slot_ops);
    if (op != NULL) {
        *op = (struct digest_op){.digest = {.jobs = {.pool = tc->needs.agent->pool,
                                                     .threads = tc->needs.agent->pool_threads,
                                                     .done = digest_done},
                                            .image = segment_image(d->segment, k),
                                            .image_bytes = segment_info(d->segment).image_bytes,
                                            .progress = &op->moving.progress,
                                            .crcs = segment_crcs(d->segment, k)},
                                 .moving = {.slot = a->slot, .node = NONE32, .version = a->version},
                                 .tc = tc,
                                 .slot = a->slot,
                                 .version = a->version,
                                 .sealed = segment_seal(d->segment, k)};
    }
    if (op == NULL || slot_digest_start(&op->digest) != TCK_OK) {
        log_error("out of memory: the digests of a sealed slot cannot be computed");
        free(op);
        struct event event = {.type = EVENT_VERIFIED, .slot = a->slot, .version = a->version, .ok = false};
        driver_step_node(tc, &event);
        slot_op_end(tc->needs.agent->slot_ops);
        return;
    }
    moving_begin(tc, &op->moving);
}

/* ---- replicas ------------------------------------------------------------------------------------------------ */

struct replica_op {
    struct compared_copy compared; /* the first member: copy_compared */
    struct moving moving;
    struct term_context *tc;
    struct tier_item item;
    uint32_t node, shard, slot;
    struct tier_base base;
    uint64_t sent;
};

static void pin(struct term_context *tc, uint32_t slot, enum event_type type)
{
    struct event event = {.type = type, .slot = slot};
    driver_step_node(tc, &event);
}

static void replica_event(struct term_context *tc, const struct replica_op *op, bool ok, enum refusal refusal)
{
    struct event event = {.type = EVENT_REPLICA,
                          .node = op->node,
                          .shard = op->shard,
                          .version = op->item.version,
                          .root = op->item.root,
                          .ok = ok,
                          .refusal = refusal};
    driver_step_node(tc, &event);
}

/* The copy has ended, or cannot be offered. */
static void replica_end(struct replica_op *op, bool ok, enum refusal refusal)
{
    struct slot_ops *slot_ops = op->tc->needs.agent->slot_ops;
    moving_end(&op->moving);
    replica_event(op->tc, op, ok, refusal);
    pin(op->tc, op->slot, EVENT_UNPIN);
    free(op->compared.same);
    free(op);
    slot_op_end(slot_ops);
}

/* A holder without the base gets more than was known at first. */
static uint64_t bytes_to_send(const struct replica_op *op)
{
    return op->item.image_bytes - op->compared.same_bytes + op->base.more;
}

static void copies_pace_end(const struct replica_op *op)
{
    uint64_t to_send = bytes_to_send(op);
    pacing_end(op->tc->needs.agent->pacing, LANE_COPIES, op->sent < to_send ? to_send - op->sent : 0);
}

static void log_not_copied(const struct replica_op *op, const struct error *why)
{
    bool canceled = why->code == TCK_ERR_CANCELED && !node_copy_wanted(op->tc->node, op->slot, op->node);
    log_info("copy of version %" PRIu64 ".%" PRIu64 " to node %s %s: %s", op->item.version.term, op->item.version.step,
             op->tc->world.nodes[op->node].name, canceled ? "was canceled" : "failed", why->text);
}

static void replica_done(void *ctx, const struct error *outcome)
{
    struct replica_op *op = ctx;
    struct tally *tally = &op->tc->needs.agent->tally;
    bool ok = outcome->code == TCK_OK;
    failpoint(copy, acked);
    tally->copied_bytes += ok ? op->item.image_bytes - op->base.not_sent : 0;
    tally->unchanged_out_bytes += ok ? op->base.not_sent : 0;
    if (!ok) {
        log_not_copied(op, outcome);
    }
    copies_pace_end(op);
    replica_end(op, ok, ok ? REFUSAL_NONE : replica_refusal(outcome->code));
}

static void offer(struct replica_op *op)
{
    struct term_context *tc = op->tc;
    struct error err;
    op->item.base = op->compared.same_bytes > 0 ? &op->base : NULL;
    op->item.sent = &op->sent;
    pacing_begin(tc->needs.agent->pacing, LANE_COPIES, op->item.version, bytes_to_send(op));
    peer_messages_show_decision(tc, op->node); /* it may have freed the slot that the copy needs there */
    if (tc->peers[op->node] == NULL ||
        peer_put(tc->peers[op->node], tc->world.term, &op->item, replica_done, op, &err) != TCK_OK) {
        copies_pace_end(op);
        replica_end(op, false, REFUSAL_HOLDER_LOST);
    }
}

/* What is the same in the base is known. */
static void copy_compared(struct compared_copy *copy, bool wanted)
{
    struct replica_op *op = (struct replica_op *)copy;
    if (wanted) {
        offer(op);
    } else {
        replica_end(op, false, REFUSAL_HOLDER_LOST);
    }
}

static void replicate(struct term_context *tc, const struct action *a)
{
    uint32_t k;
    struct local_shard *d = term_context_slot(tc, a->slot, &k);
    struct replica_op *op = calloc(1, sizeof(*op));
    if (op == NULL) {
        struct replica_op failed = {.node = a->node, .shard = a->shard, .item.version = a->version};
        replica_event(tc, &failed, false, REFUSAL_HOLDER_LOST);
        if (a->base_slot != NONE32) {
            pin(tc, a->base_slot, EVENT_UNPIN);
        }
        return;
    }
    slot_op_begin(tc->needs.agent->slot_ops);
    pin(tc, a->slot, EVENT_PIN);
    *op = (struct replica_op){.moving = {.slot = a->slot, .node = a->node, .version = a->version},
                              .tc = tc,
                              .node = a->node,
                              .shard = a->shard,
                              .slot = a->slot};
    op->item = (struct tier_item){.version = a->version,
                                  .shard = segment_info(d->segment).shard,
                                  .image_bytes = segment_info(d->segment).image_bytes,
                                  .image = segment_image(d->segment, k),
                                  .crcs = segment_crcs(d->segment, k),
                                  .root = node_slot(tc->node, a->slot)->root,
                                  .progress = &op->moving.progress};
    moving_begin(tc, &op->moving);
    op->compared = (struct compared_copy){
        .tc = tc, .slot = a->slot, .node = a->node, .item = &op->item, .base = &op->base, .done = copy_compared};
    bool waits = a->base_slot != NONE32 && comparison_wait(&op->compared, a->base_slot, tc->needs.agent->pool);
    if (a->base_slot != NONE32) {
        pin(tc, a->base_slot, EVENT_UNPIN); /* its comparison has a pin of its own */
    }
    if (!waits) {
        offer(op);
    }
}

static void cancel_copy(struct term_context *tc, const struct action *a)
{
    if (tc->peers[a->node] != NULL) {
        peer_cancel_put(tc->peers[a->node], tc->world.term, a->version, tc->world.shards[a->shard].id);
    }
}

/* ---- answers to trainers ------------------------------------------------------------------------------------- */

static void grant(struct term_context *tc, const struct action *a)
{
    struct client *client = client_of_rank(tc->needs.agent->clients, tc->world.term, tc->ranks[a->rank]);
    if (client == NULL) {
        return; /* its loss is reported by its own event */
    }
    memset(tc->refused, 0, sizeof(tc->refused));
    tally_save_begun(&tc->needs.agent->tally, a->version, clock_ms());
    pacing_saves(tc->needs.agent->pacing, a->version.step);
    uint32_t *slots = calloc(tc->setup.shard_count ? tc->setup.shard_count : 1, sizeof(*slots));
    struct msg_grant m = {.seq = client->begin_seq, .step = a->version.step, .slots = slots};
    for (uint32_t i = 0; slots != NULL && i < tc->setup.shard_count; i++) {
        if (tc->shards[i].storing_rank == a->rank) {
            slots[m.count++] = node_slot_of(tc->node, i, a->version) - tc->local_shards[i].first_slot;
        }
    }
    struct writer w = writer_new(0);
    if (slots != NULL) {
        msg_grant_encode(&m, &w);
        failpoint(slot, granting);
        client_send(client, MSG_GRANT, &w);
        failpoint(slot, granted);
    } else {
        client_cut(client, "out of memory for a grant");
    }
    writer_free(&w);
    free(slots);
}

#define WHO_TEXT (WRITER_TEXT + 3)

/* Names what blocks the slot, and the remedy; empty for other refusals. */
static const char *writer_text(const struct term_context *tc, const struct action *a, char text[WHO_TEXT])
{
    struct slot_writer writer;
    struct version version;
    char who[WRITER_TEXT];
    text[0] = '\0';
    if (a->refusal == REFUSAL_QUARANTINED &&
        writers_of_rank(&tc->needs.agent->writers, tc, a->rank, &writer, &version)) {
        writers_describe(&writer, version, who);
        snprintf(text, WHO_TEXT, " (%s)", who);
    }
    return text;
}

/* Rate-limited: while a node is down, every save is refused. */
static void log_refusal(struct term_context *tc, const struct action *a)
{
    struct log_limit *limit = &tc->refused[a->refusal];
    char writer[WHO_TEXT];
    if (log_limit_pass(limit)) {
        log_info("save of step %" PRIu64 " by rank %u refused: %s%s (%" PRIu64
                 " refused for this reason since the last granted one)",
                 a->version.step, tc->ranks[a->rank], refusal_text(a->refusal), writer_text(tc, a, writer),
                 limit->count);
    }
}

static void refuse(struct term_context *tc, const struct action *a)
{
    log_refusal(tc, a);
    tc->needs.agent->tally.saves_refused[a->refusal]++;
    struct client *client = client_of_rank(tc->needs.agent->clients, tc->world.term, tc->ranks[a->rank]);
    if (client != NULL) {
        struct error err;
        char writer[WHO_TEXT];
        tck_status_t code = a->refusal == REFUSAL_NOT_YET ? TCK_ERR_NOSPC : TCK_ERR_BUSY;
        (void)error_set(&err, code, "save of step %" PRIu64 " refused: %s%s", a->version.step, refusal_text(a->refusal),
                        writer_text(tc, a, writer));
        client_error(client, MSG_REFUSED, client->begin_seq, &err);
    }
}

static void raise_to(_Atomic uint64_t *field, uint64_t step)
{
    if (atomic_load_explicit(field, memory_order_relaxed) < step) {
        atomic_store_explicit(field, step, memory_order_release);
    }
}

static void show_stage(struct shared_status *shared, const struct action *a)
{
    switch (a->stage) {
    case STAGE_PROTECTED:
        raise_to(&shared->protected_step, a->version.step);
        break;
    case STAGE_COMMITTED:
        raise_to(&shared->committed_step, a->version.step);
        break;
    case STAGE_PUBLISHED:
        raise_to(&shared->published_step, a->version.step);
        break;
    case STAGE_FAILED:
        raise_to(&shared->failed_step, a->version.step);
        break;
    }
}

/* ---- notifications to trainers ----------------------------------------------------------------------------------- */

/* Marks the headers of a committed version: a hint for recoveries, which must not go back past a commit unnoticed. */
static void mark_committed(struct term_context *tc, struct version version)
{
    for (uint32_t i = 0; i < tc->setup.shard_count; i++) {
        uint32_t slot = node_slot_of(tc->node, i, version);
        if (slot != NONE32 && node_slot(tc->node, slot)->state == SLOT_VERIFIED) {
            struct action a = {.slot = slot};
            write_header(tc, &a);
        }
    }
}

static void notify(struct term_context *tc, const struct action *a)
{
    struct agent *agent = tc->needs.agent;
    static const enum catalog_state states[] = {[STAGE_PROTECTED] = CATALOG_PROTECTED,
                                                [STAGE_COMMITTED] = CATALOG_COMMITTED,
                                                [STAGE_PUBLISHED] = CATALOG_PUBLISHED,
                                                [STAGE_FAILED] = CATALOG_ABORTED};
    log_info("version %" PRIu64 ".%" PRIu64 " is %s", a->version.term, a->version.step,
             catalog_state_name(states[a->stage]));
    agent->tally.versions[a->stage]++;
    agent->tally.stage_wall_ms[a->stage] = clock_wall_ms();
    if (a->stage == STAGE_COMMITTED) {
        tally_committed(&agent->tally, a->version, clock_ms());
        metadata_note_commit(agent->metadata, tc);
        failpoint(commit, marking);
        mark_committed(tc, a->version);
        failpoint(commit, telling);
    }
    if (a->stage == STAGE_PUBLISHED) {
        health_storage_published(agent->health);
    }
    metadata_put_version(agent->metadata, tc, a->version, states[a->stage]);
    for (struct client *c = agent->clients; c != NULL; c = c->next) {
        if (c->trainer && c->term == tc->world.term && a->version.term == tc->world.term) {
            show_stage(c->shared, a);
        }
    }
}

/* ---- to the coordinator -------------------------------------------------------------------------------------- */

/* Roots of the shards that other nodes also own. They are equal as long as data-parallel ranks agree. */
static uint32_t twin_roots(const struct term_context *tc, struct version version, struct wire_root *roots)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < tc->setup.shard_count; i++) {
        uint32_t shard = tc->shards[i].world_shard;
        uint32_t slot = node_slot_of(tc->node, i, version);
        if (shard != NONE32 && slot != NONE32 && tc->shards[i].storing_rank != NONE32 &&
            tc->placement.shards[shard].owner_count > 1) {
            roots[count++] = (struct wire_root){.shard = shard, .root = node_slot(tc->node, slot)->root};
        }
    }
    return count;
}

static void send_ready(struct term_context *tc, const struct action *a)
{
    struct wire_root *roots = calloc(tc->setup.shard_count ? tc->setup.shard_count : 1, sizeof(*roots));
    if (roots == NULL) {
        return; /* repeated by the machine */
    }
    struct wire_ready m = {.term = tc->world.term,
                           .version = a->version,
                           .layout = tc->world.layout,
                           .to_storage = a->to_storage,
                           .roots = roots};
    m.count = twin_roots(tc, a->version, roots);
    struct writer w = writer_new(0);
    wire_ready_encode(&m, &w);
    failpoint(ready, sending);
    rpc_send_coordinator(tc, WIRE_READY, &w);
    failpoint(ready, sent);
    writer_free(&w);
    free(roots);
}

/* True if this rank fills the shard's slot and another node also owns the shard. */
static bool is_early_root(const struct term_context *tc, uint32_t i, uint32_t rank, const struct msg_roots *m,
                          struct hash128 shard)
{
    const struct node_shard *s = &tc->shards[i];
    return s->world_shard != NONE32 && s->storing_rank == rank &&
           tc->placement.shards[s->world_shard].owner_count > 1 &&
           node_slot_of(tc->node, i, (struct version){tc->world.term, m->step}) != NONE32 &&
           hash128_is(tc->world.shards[s->world_shard].id, shard);
}

void actions_send_roots(struct term_context *tc, uint32_t rank, const struct msg_roots *m)
{
    struct wire_roots early = {.term = tc->world.term, .version = {tc->world.term, m->step}};
    early.roots = calloc(m->count + (size_t)1, sizeof(*early.roots));
    for (uint32_t k = 0; k < m->count && early.roots != NULL; k++) {
        for (uint32_t i = 0; i < tc->setup.shard_count; i++) {
            if (is_early_root(tc, i, rank, m, m->roots[k].shard)) {
                early.roots[early.count++] = (struct wire_root){tc->shards[i].world_shard, m->roots[k].root};
                break;
            }
        }
    }
    if (early.count > 0) {
        struct writer w = writer_new(0);
        wire_roots_encode(&early, &w);
        rpc_send_coordinator(tc, WIRE_ROOTS, &w);
        writer_free(&w);
    }
    free(early.roots);
}

#define NODES_TEXT 128

/* Once for each version: the report is repeated until the coordinator has decided. */
static void log_stuck(const struct term_context *tc, const struct action *a)
{
    char lacks[STUCK_TEXT];
    if (a->refusal != REFUSAL_TIMED_OUT || !a->first) {
        return;
    }
    moving_lacks(tc, a->version, lacks);
    log_warn("version %" PRIu64 ".%" PRIu64
             " is given up, since nothing of it moved for %.1f s (version_timeout_ms): %s",
             a->version.term, a->version.step, tc->setup.version_timeout_ms / 1e3, lacks);
}

/* By this node as the coordinator. Another node that is not ready has said more in its own log, unless no rank there
 * has begun the version. */
static void log_given_up(const struct term_context *tc, const struct action *a)
{
    const char *name = tc->world.nodes[a->node].name;
    char nodes[NODES_TEXT];
    if (a->count == 1) {
        snprintf(nodes, sizeof(nodes), "node %s is", name);
    } else {
        snprintf(nodes, sizeof(nodes), "node %s and %" PRIu32 " other%s are", name, a->count - 1,
                 a->count == 2 ? "" : "s");
    }
    log_warn("version %" PRIu64 ".%" PRIu64
             " is given up, since nothing of it moved for %.1f s (version_timeout_ms): %s not ready with it",
             a->version.term, a->version.step, tc->setup.version_timeout_ms / 1e3, nodes);
}

static void send_refused(struct term_context *tc, const struct action *a)
{
    log_stuck(tc, a);
    struct wire_refused m = {.term = tc->world.term, .version = a->version, .refusal = (uint8_t)a->refusal};
    struct writer w = writer_new(0);
    wire_refused_encode(&m, &w);
    rpc_send_coordinator(tc, WIRE_REFUSED, &w);
    writer_free(&w);
}

static void send_progress(struct term_context *tc, const struct action *a)
{
    struct wire_progress m = {.term = tc->world.term, .version = a->version};
    struct writer w = writer_new(0);
    wire_progress_encode(&m, &w);
    rpc_send_coordinator(tc, WIRE_PROGRESS, &w);
    writer_free(&w);
}

/* ---- all of them -------------------------------------------------------------------------------------------- */

void actions_carry_out(struct term_context *tc, const struct action *a)
{
    switch (a->type) {
    case ACTION_GRANT:
        grant(tc, a);
        break;
    case ACTION_REFUSE:
        refuse(tc, a);
        break;
    case ACTION_WRITE_HEADER:
        write_header(tc, a);
        break;
    case ACTION_VERIFY:
        verify(tc, a);
        break;
    case ACTION_REPLICATE:
        replicate(tc, a);
        break;
    case ACTION_CANCEL_COPY:
        cancel_copy(tc, a);
        break;
    case ACTION_STORE:
    case ACTION_REJECT_OFFER:
    case ACTION_ACK_OFFER:
    case ACTION_FETCH_SLOT:
        break; /* answers, returned by driver_ask_node */
    case ACTION_SEND_READY:
        send_ready(tc, a);
        break;
    case ACTION_SEND_REFUSED:
        send_refused(tc, a);
        break;
    case ACTION_SEND_PROGRESS:
        send_progress(tc, a);
        break;
    case ACTION_DRAIN:
        drain_begin(tc->needs.agent->drain, tc, a);
        break;
    case ACTION_SEND_DRAINED:
        drain_notify(tc->needs.agent->drain, tc, a);
        break;
    case ACTION_NOTIFY:
        notify(tc, a);
        break;
    case ACTION_GIVE_UP:
        log_given_up(tc, a);
        break;
    case ACTION_ANNOUNCE:
        peer_messages_announce(tc);
        failpoint(decision, announced);
        break;
    case ACTION_PUBLISH:
        drain_publish(tc->needs.agent->drain, tc, a);
        break;
    }
}
