/* SPDX-License-Identifier: Apache-2.0
 * Between the pure machines and the world: events go in one after the other, each event's actions are carried out in
 * order before the next. Actions that take time (digests, transfers) come back as events. */
#include "agent/agent.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

/* ---- slots --------------------------------------------------------------------------------------------------- */

/* The trainer that a slot is given to; kept while it may write there. */
static struct slot_writer writer_of(const struct formation *f, const struct slot *slot, struct slot_writer before)
{
    if (slot->state == SLOT_QUARANTINED) {
        return before;
    }
    uint32_t local = f->shards[slot->shard].storing_rank;
    if (slot->state != SLOT_FILLING || local == NONE32) {
        return (struct slot_writer){0};
    }
    const struct client *client = client_of_rank(f->agent, f->world.term, f->ranks[local]);
    return (struct slot_writer){.process = client ? client->process : (struct process){0}, .rank = f->ranks[local]};
}

static void write_header(struct formation *f, const struct action *a)
{
    uint32_t k;
    struct duty *d = formation_slot(f, a->slot, &k);
    const struct slot *slot = node_slot(f->node, a->slot);
    const struct decision *decision = node_decision(f->node);
    struct slot_header header = *segment_header(d->segment, k);
    header.state = slot->state;
    header.version = slot->version;
    header.root = slot->root;
    header.layout = f->world.layout;
    header.to_storage = slot->to_storage;
    header.writer = writer_of(f, slot, header.writer);
    header.committed = slot->state == SLOT_VERIFIED && decision_fate(decision, slot->version) == FATE_COMMITTED;
    if (slot->state == SLOT_FREE) {
        failpoint(slot, freeing);
    }
    segment_write_header(d->segment, k, &header);
}

/* Digests of one slot, made in a pool thread. */
struct digest_op {
    struct formation *f;
    uint32_t slot;
    struct version version;
    const uint8_t *image;
    uint64_t image_bytes;
    uint32_t *crcs;
    struct hash128 root;
    struct sealed sealed;
};

static void digest_work(void *ctx)
{
    struct digest_op *op = ctx;
    failpoint(digest, begun);
    op->root = digest_image(op->image, op->image_bytes, op->crcs);
    failpoint(digest, made);
    failpoint_bytes(digest, image, (uint8_t *)(uintptr_t)op->image, op->image_bytes);
}

/* A trainer whose records lie on devices may have had the digests made there: then these have to be the same. */
static bool arrived_whole(const struct digest_op *op)
{
    const struct sealed *sealed = &op->sealed;
    if (!sealed->has_root || !version_is(sealed->version, op->version) || hash128_is(sealed->root, op->root)) {
        return true;
    }
    log_error(
        "version %llu.%llu: slot %u is not what its trainer's device had: the copy was damaged on its way or since",
        (unsigned long long)op->version.term, (unsigned long long)op->version.step, op->slot);
    return false;
}

static void digest_done(void *ctx, bool canceled)
{
    struct digest_op *op = ctx;
    struct agent *agent = op->f->agent;
    struct event event = {.type = EVENT_VERIFIED,
                          .slot = op->slot,
                          .version = op->version,
                          .root = op->root,
                          .ok = !canceled && arrived_whole(op),
                          .refusal = canceled ? REFUSAL_RANK_LOST : REFUSAL_NONE};
    drive_node(op->f, &event);
    free(op);
    agent_op_end(agent);
}

static void verify(struct formation *f, const struct action *a)
{
    uint32_t k;
    struct duty *d = formation_slot(f, a->slot, &k);
    struct digest_op *op = calloc(1, sizeof *op);
    agent_op_begin(f->agent);
    if (op) {
        *op = (struct digest_op){.f = f,
                                 .slot = a->slot,
                                 .version = a->version,
                                 .image = segment_image(d->segment, k),
                                 .image_bytes = segment_info(d->segment).image_bytes,
                                 .crcs = segment_crcs(d->segment, k),
                                 .sealed = segment_seal(d->segment, k)};
    }
    if (!op || pool_submit(f->agent->pool, digest_work, digest_done, op) != TCK_OK) {
        log_error("no memory to make the digests of a sealed slot");
        free(op);
        struct event event = {.type = EVENT_VERIFIED, .slot = a->slot, .version = a->version, .ok = false};
        drive_node(f, &event);
        agent_op_end(f->agent);
    }
}

/* ---- replicas ------------------------------------------------------------------------------------------------ */

struct replica_op {
    struct formation *f;
    struct tier_item item;
    uint32_t node, shard, slot;
};

static void pin(struct formation *f, uint32_t slot, enum event_type type)
{
    struct event event = {.type = type, .slot = slot};
    drive_node(f, &event);
}

static void replica_event(struct formation *f, const struct replica_op *op, bool ok, enum refusal refusal)
{
    struct event event = {.type = EVENT_REPLICA,
                          .node = op->node,
                          .shard = op->shard,
                          .version = op->item.version,
                          .root = op->item.root,
                          .ok = ok,
                          .refusal = refusal};
    drive_node(f, &event);
}

/* A refusal that another try cannot heal, from the status that the holder answered with. */
static enum refusal refusal_of(tck_status_t status)
{
    if (status == TCK_ERR_CORRUPT) {
        return REFUSAL_CORRUPT;
    }
    return status == TCK_ERR_DENIED ? REFUSAL_TERM_CLOSED : REFUSAL_NO_SLOT;
}

static void replica_done(void *ctx, const struct error *outcome)
{
    struct replica_op *op = ctx;
    struct agent *agent = op->f->agent;
    bool ok = outcome->code == TCK_OK;
    failpoint(copy, acked);
    if (!ok) {
        log_info("copy of version %llu.%llu to node %s failed: %s", (unsigned long long)op->item.version.term,
                 (unsigned long long)op->item.version.step, op->f->world.nodes[op->node].name, outcome->text);
    }
    replica_event(op->f, op, ok, ok ? REFUSAL_NONE : refusal_of(outcome->code));
    pin(op->f, op->slot, EVENT_UNPIN);
    free(op);
    agent_op_end(agent);
}

static void replicate(struct formation *f, const struct action *a)
{
    uint32_t k;
    struct duty *d = formation_slot(f, a->slot, &k);
    struct replica_op *op = calloc(1, sizeof *op);
    struct error err = {.code = TCK_ERR_NOMEM};
    agent_op_begin(f->agent);
    pin(f, a->slot, EVENT_PIN);
    if (op) {
        *op = (struct replica_op){.f = f, .node = a->node, .shard = a->shard, .slot = a->slot};
        op->item = (struct tier_item){.version = a->version,
                                      .shard = segment_info(d->segment).shard,
                                      .image_bytes = segment_info(d->segment).image_bytes,
                                      .image = segment_image(d->segment, k),
                                      .crcs = segment_crcs(d->segment, k),
                                      .root = node_slot(f->node, a->slot)->root};
    }
    if (!op || !f->peers[a->node] ||
        peer_put(f->peers[a->node], f->world.term, &op->item, replica_done, op, &err) != TCK_OK) {
        struct replica_op failed = op ? *op : (struct replica_op){.node = a->node, .shard = a->shard};
        failed.item.version = a->version;
        free(op);
        replica_event(f, &failed, false, REFUSAL_HOLDER_LOST);
        pin(f, a->slot, EVENT_UNPIN);
        agent_op_end(f->agent);
    }
}

/* ---- answers to trainers ------------------------------------------------------------------------------------- */

static void grant(struct formation *f, const struct action *a)
{
    struct client *client = client_of_rank(f->agent, f->world.term, f->ranks[a->rank]);
    if (!client) {
        return; /* its loss is reported by its own event */
    }
    memset(f->refused, 0, sizeof f->refused);
    uint32_t *slots = calloc(f->setup.shard_count ? f->setup.shard_count : 1, sizeof *slots);
    struct msg_grant m = {.seq = client->begin_seq, .step = a->version.step, .slots = slots};
    for (uint32_t i = 0; slots && i < f->setup.shard_count; i++) {
        if (f->shards[i].storing_rank == a->rank) {
            slots[m.count++] = node_slot_of(f->node, i, a->version) - f->duties[i].first_slot;
        }
    }
    struct writer w = writer_new(0);
    if (slots) {
        msg_grant_encode(&m, &w);
        failpoint(slot, granting);
        client_send(client, MSG_GRANT, &w);
        failpoint(slot, granted);
    } else {
        client_cut(client, "no memory for a grant");
    }
    writer_free(&w);
    free(slots);
}

#define WRITER_TEXT 128

/* Which process is in the way, and what helps; empty for other refusals. */
static const char *writer_text(const struct formation *f, const struct action *a, char text[WRITER_TEXT])
{
    struct slot_writer writer;
    struct version version;
    text[0] = '\0';
    if (a->refusal == REFUSAL_QUARANTINED && writers_of_rank(f, a->rank, &writer, &version)) {
        snprintf(text, WRITER_TEXT, " (process %d, which was rank %u of term %llu: end it, with kill -9 if need be)",
                 (int)writer.process.pid, writer.rank, (unsigned long long)version.term);
    }
    return text;
}

/* While a node is away all are, at every interval. */
static void log_refusal(struct formation *f, const struct action *a)
{
    struct log_limit *limit = &f->refused[a->refusal];
    char writer[WRITER_TEXT];
    if (log_limit_pass(limit)) {
        log_info("save of step %llu by rank %u is refused: %s%s (%llu so since one was granted)",
                 (unsigned long long)a->version.step, f->ranks[a->rank], refusal_text(a->refusal),
                 writer_text(f, a, writer), (unsigned long long)limit->count);
    }
}

static void refuse(struct formation *f, const struct action *a)
{
    log_refusal(f, a);
    struct client *client = client_of_rank(f->agent, f->world.term, f->ranks[a->rank]);
    if (client) {
        struct error err;
        char writer[WRITER_TEXT];
        (void)error_set(&err, TCK_ERR_BUSY, "save of step %llu refused: %s%s", (unsigned long long)a->version.step,
                        refusal_text(a->refusal), writer_text(f, a, writer));
        client_error(client, MSG_REFUSED, client->begin_seq, &err);
    }
}

static void raise_to(_Atomic uint64_t *field, uint64_t step)
{
    if (atomic_load_explicit(field, memory_order_relaxed) < step) {
        atomic_store_explicit(field, step, memory_order_release);
    }
}

static void tell_board(struct board *board, const struct action *a)
{
    switch (a->told) {
    case TOLD_PROTECTED:
        raise_to(&board->protected_step, a->version.step);
        break;
    case TOLD_COMMITTED:
        raise_to(&board->committed_step, a->version.step);
        break;
    case TOLD_PUBLISHED:
        raise_to(&board->published_step, a->version.step);
        break;
    case TOLD_FAILED:
        raise_to(&board->failed_step, a->version.step);
        break;
    }
}

/* ---- what trainers are told ---------------------------------------------------------------------------------- */

/* Headers of a committed version say so: a hint for recoveries that must know what was promised. */
static void mark_committed(struct formation *f, struct version version)
{
    for (uint32_t i = 0; i < f->setup.shard_count; i++) {
        uint32_t slot = node_slot_of(f->node, i, version);
        if (slot != NONE32 && node_slot(f->node, slot)->state == SLOT_VERIFIED) {
            struct action a = {.slot = slot};
            write_header(f, &a);
        }
    }
}

static void tell(struct formation *f, const struct action *a)
{
    static const enum catalog_state states[] = {[TOLD_PROTECTED] = CATALOG_PROTECTED,
                                                [TOLD_COMMITTED] = CATALOG_COMMITTED,
                                                [TOLD_PUBLISHED] = CATALOG_PUBLISHED,
                                                [TOLD_FAILED] = CATALOG_ABORTED};
    log_info("version %llu.%llu is %s", (unsigned long long)a->version.term, (unsigned long long)a->version.step,
             catalog_state_name(states[a->told]));
    if (a->told == TOLD_COMMITTED) {
        ledger_committed(f);
        failpoint(commit, marking);
        mark_committed(f, a->version);
        failpoint(commit, telling);
    }
    if (a->told == TOLD_PUBLISHED) {
        health_storage_published(f->agent);
    }
    ledger_tell(f, a->version, states[a->told]);
    for (struct client *c = f->agent->clients; c; c = c->next) {
        if (c->trainer && c->term == f->world.term && a->version.term == f->world.term) {
            tell_board(c->board, a);
        }
    }
}

/* ---- to the coordinator -------------------------------------------------------------------------------------- */

/* Roots of the shards that other nodes own too: while data-parallel ranks agree they are equal. */
static uint32_t twin_roots(const struct formation *f, struct version version, struct wire_root *roots)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < f->setup.shard_count; i++) {
        uint32_t shard = f->shards[i].world_shard;
        uint32_t slot = node_slot_of(f->node, i, version);
        if (shard != NONE32 && slot != NONE32 && f->shards[i].storing_rank != NONE32 &&
            f->placement.shards[shard].owner_count > 1) {
            roots[count++] = (struct wire_root){.shard = shard, .root = node_slot(f->node, slot)->root};
        }
    }
    return count;
}

static void send_ready(struct formation *f, const struct action *a)
{
    struct wire_root *roots = calloc(f->setup.shard_count ? f->setup.shard_count : 1, sizeof *roots);
    if (!roots) {
        return; /* repeated by the machine */
    }
    struct wire_ready m = {.term = f->world.term,
                           .version = a->version,
                           .layout = f->world.layout,
                           .to_storage = a->to_storage,
                           .roots = roots};
    m.count = twin_roots(f, a->version, roots);
    struct writer w = writer_new(0);
    wire_ready_encode(&m, &w);
    failpoint(ready, sending);
    exchange_send_coordinator(f, WIRE_READY, &w);
    failpoint(ready, sent);
    writer_free(&w);
    free(roots);
}

/* What a rank says that it is filling, and other nodes own too. */
static bool is_early_root(const struct formation *f, uint32_t i, uint32_t rank, const struct msg_roots *m,
                          struct hash128 shard)
{
    const struct node_shard *s = &f->shards[i];
    return s->world_shard != NONE32 && s->storing_rank == rank && f->placement.shards[s->world_shard].owner_count > 1 &&
           node_slot_of(f->node, i, (struct version){f->world.term, m->step}) != NONE32 &&
           hash128_is(f->world.shards[s->world_shard].id, shard);
}

void drive_roots(struct formation *f, uint32_t rank, const struct msg_roots *m)
{
    struct wire_roots early = {.term = f->world.term, .version = {f->world.term, m->step}};
    early.roots = calloc(m->count + (size_t)1, sizeof *early.roots);
    for (uint32_t k = 0; k < m->count && early.roots; k++) {
        for (uint32_t i = 0; i < f->setup.shard_count; i++) {
            if (is_early_root(f, i, rank, m, m->roots[k].shard)) {
                early.roots[early.count++] = (struct wire_root){f->shards[i].world_shard, m->roots[k].root};
                break;
            }
        }
    }
    if (early.count > 0) {
        struct writer w = writer_new(0);
        wire_roots_encode(&early, &w);
        exchange_send_coordinator(f, WIRE_ROOTS, &w);
        writer_free(&w);
    }
    free(early.roots);
}

static void send_refused(struct formation *f, const struct action *a)
{
    struct wire_refused m = {.term = f->world.term, .version = a->version, .refusal = (uint8_t)a->refusal};
    struct writer w = writer_new(0);
    wire_refused_encode(&m, &w);
    exchange_send_coordinator(f, WIRE_REFUSED, &w);
    writer_free(&w);
}

/* ---- the machines -------------------------------------------------------------------------------------------- */

static void carry_out(struct formation *f, const struct action *a)
{
    switch (a->type) {
    case ACTION_GRANT:
        grant(f, a);
        break;
    case ACTION_REFUSE:
        refuse(f, a);
        break;
    case ACTION_WRITE_HEADER:
        write_header(f, a);
        break;
    case ACTION_VERIFY:
        verify(f, a);
        break;
    case ACTION_REPLICATE:
        replicate(f, a);
        break;
    case ACTION_STORE:
    case ACTION_REJECT_OFFER:
    case ACTION_ACK_OFFER:
        copies_offer_answer(f, a);
        break;
    case ACTION_FETCH_SLOT:
        fetch_slot_answer(f, a);
        break;
    case ACTION_SEND_READY:
        send_ready(f, a);
        break;
    case ACTION_SEND_REFUSED:
        send_refused(f, a);
        break;
    case ACTION_DRAIN:
        drain_begin(f, a);
        break;
    case ACTION_SEND_DRAINED:
        drain_tell(f, a);
        break;
    case ACTION_TELL:
        tell(f, a);
        break;
    case ACTION_ANNOUNCE:
        exchange_announce(f);
        failpoint(decision, announced);
        break;
    case ACTION_PUBLISH:
        drain_publish(f, a);
        break;
    }
}

/* The user can do something about it, so it is said once when it begins. */
static void tell_held_back(const struct decision *before, const struct decision *now)
{
    bool was = before->term == now->term && before->not_before > 0;
    if (!was && now->not_before > 0) {
        log_warn(
            "saves come faster than their copies can follow: several versions in a row found no slot on some node or "
            "were not copied in time. Most saves are let by now (the next is that of step %llu or later) until "
            "versions are committed again. Raise save_mem_interval, or have slots = 3",
            (unsigned long long)now->not_before);
    } else if (was && now->not_before == 0) {
        log_info("copies follow again: every save is begun");
    }
}

static void keep_decision(struct formation *f, const struct decision *decision)
{
    struct kept kept = *state_get(f->agent->state);
    tell_held_back(&kept.decision, decision);
    kept.decision = *decision;
    state_put(f->agent->state, &kept);
}

static void step(struct formation *f, const struct queued_event *next)
{
    f->actions.count = 0;
    if (next->for_coordinator) {
        coordinator_step(f->coordinator, &next->event, &f->actions);
    } else {
        node_step(f->node, &next->event, &f->actions);
        if (next->event.type == EVENT_DECISION && !f->coordinator) {
            failpoint(decision, learned);
            keep_decision(f, node_decision(f->node));
        }
    }
    /* Before anybody hears of a decision it must survive this process. */
    if (next->for_coordinator && f->actions.count > 0) {
        failpoint(decision, made);
        keep_decision(f, coordinator_decision(f->coordinator));
        failpoint(decision, kept);
    }
    for (uint32_t i = 0; i < f->actions.count; i++) {
        struct action action = f->actions.items[i];
        carry_out(f, &action);
    }
    if (next->event.type == EVENT_DECISION) {
        trainers_decided(f);
    }
}

static void run_queue(struct formation *f)
{
    if (f->stepping) {
        return;
    }
    f->stepping = true;
    for (uint32_t i = 0; i < f->queue_count; i++) {
        struct queued_event next = f->queue[i];
        step(f, &next);
    }
    f->queue_count = 0;
    f->stepping = false;
}

static void feed(struct formation *f, const struct event *event, bool for_coordinator)
{
    if (f->queue_count == f->queue_cap) {
        uint32_t cap = f->queue_cap ? 2 * f->queue_cap : 16;
        struct queued_event *grown = realloc(f->queue, cap * sizeof *grown);
        if (!grown) {
            log_error("out of memory: a protocol event is lost"); /* as a lost message: retries mend it */
            return;
        }
        f->queue = grown;
        f->queue_cap = cap;
    }
    struct queued_event *slot = &f->queue[f->queue_count++];
    *slot = (struct queued_event){.for_coordinator = for_coordinator, .event = *event};
    slot->event.term = f->world.term;
    slot->event.now_ms = clock_ms();
    run_queue(f);
}

/* What ends operations that were under way when the formation was closed, and keeps pins balanced. */
static bool outlives_term(enum event_type type)
{
    return type == EVENT_VERIFIED || type == EVENT_PIN || type == EVENT_UNPIN || type == EVENT_CORRUPT;
}

void drive_node(struct formation *f, const struct event *event)
{
    if (!f->closed || outlives_term(event->type)) {
        feed(f, event, false);
    }
}

void drive_coordinator(struct formation *f, const struct event *event)
{
    if (!f->closed && f->coordinator) {
        feed(f, event, true);
    }
}

void drive_tick(struct formation *f)
{
    struct event event = {.type = EVENT_TICK};
    drive_node(f, &event);
    drive_coordinator(f, &event);
}
