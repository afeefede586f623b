/* SPDX-License-Identifier: Apache-2.0
 * The coordinator's side of a recovery: sends fetches to nodes and the outcome to trainers. recovery/recovery_machine.c
 * decides; this file carries its actions out. */
#include "agent/recovery/recover.h"

#include "agent/driver/protocol_driver.h"
#include "agent/ipc/client.h"
#include "agent/membership/reservation.h"
#include "agent/recovery/recover_internal.h"
#include "agent/recovery/restore.h"
#include "agent/replication/fetch.h"
#include "agent/replication/peer_rpc.h"
#include "agent/state/hard_state.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "recovery/restore_reply.h"
#include "tiers/peer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define FETCH_TRIES     4
#define STORAGE_WAIT_MS 4000  /* for unreadable versions to become readable */
#define STORAGE_HANG_MS 60000 /* for an answer of storage, if no decision is possible without it */
#define ASK_AGAIN_MS    1000  /* fetches without an outcome, members without an inventory */

/* ---- messages to nodes ----------------------------------------------------------------------------------- */

static uint64_t newest_step_seen(const struct recover *r)
{
    const struct plan *plan = recovery_plan(r->machine);
    return plan != NULL ? plan->newest_seen.step : 0;
}

static void broadcast(struct recoveries *rs, struct term_context *tc, const struct wire_readable *m)
{
    struct writer w = writer_new(0);
    wire_readable_encode(m, &w);
    for (uint32_t n = 0; n < tc->world.node_count; n++) {
        if (n != tc->self) {
            rpc_send(tc, n, WIRE_READABLE, &w);
        }
    }
    writer_free(&w);
    restore_readable(rs->needs.restore, tc, m);
}

static void broadcast_readable(struct recover *r, tck_status_t outcome, struct version version, const char *reason)
{
    const struct plan *plan = recovery_plan(r->machine);
    struct term_context *tc = r->tc;
    struct wire_readable m = {.term = tc->world.term,
                              .asked_step = r->step,
                              .outcome = outcome,
                              .version = version,
                              .newest_step = newest_step_seen(r)};
    snprintf(m.reason, sizeof(m.reason), "%s", reason);
    if (outcome == TCK_OK) {
        snprintf(m.passed_over, sizeof(m.passed_over), "%s", hard_state_passed_over(r->all->needs.state, version));
    } else if (plan != NULL) {
        snprintf(m.passed_over, sizeof(m.passed_over), "%s", plan->passed_text);
    }
    broadcast(r->all, tc, &m);
}

static void request_fetch(struct recover *r, const struct asked_fetch *x)
{
    const struct recovery_action *a = &x->action;
    const struct recovery_spared spared = recovery_spared(r->machine);
    struct wire_fetch m = {.term = r->tc->world.term,
                           .shard = a->shard,
                           .version = a->version,
                           .floor = spared.floor,
                           .fallback = spared.fallback,
                           .source = a->source,
                           .number = x->number};
    if (a->source == SOURCE_TWIN || a->source == SOURCE_PEER) {
        m.from = a->from;
    }
    if (a->node == r->tc->self) {
        fetch_handle_ask(r->all->needs.fetches, r->tc, &m);
        return;
    }
    struct writer w = writer_new(0);
    wire_fetch_encode(&m, &w);
    rpc_send(r->tc, a->node, WIRE_FETCH, &w);
    writer_free(&w);
}

static void report_fetched(struct recover *r, uint32_t node, uint32_t shard, struct version version,
                           tck_status_t outcome)
{
    recover_step(
        r, (struct recovery_event){
               .type = RECOVERY_EVENT_FETCHED, .node = node, .shard = shard, .version = version, .outcome = outcome});
}

/* Repeated until there is an outcome: a message may be lost, and a fetch is idempotent. The request is answered more
 * than once then, and the same shard may be requested from elsewhere after the first answer: the number tells of which
 * request an outcome is. */
static void send_fetch(struct recover *r, const struct recovery_action *a)
{
    struct asked_fetch x = {.number = ++r->all->number, .action = *a};
    if (!asked_add(&r->asked, &x)) { /* the machine retries later, or gives up with this error */
        report_fetched(r, a->node, a->shard, a->version, TCK_ERR_NOMEM);
        return;
    }
    request_fetch(r, &x);
}

/* This node's own are repeated like those of the others: it may have had no memory for one, or still be busy with the
 * request of an earlier recovery, which it answers by another number. Its answer may come at once, and changes the
 * list. */
static void repeat_fetches(struct recover *r)
{
    struct asked_fetch x = {.number = UINT64_MAX};
    while (asked_before(&r->asked, x.number, &x)) {
        request_fetch(r, &x);
    }
}

/* Repeats fetches without an outcome, and asks members without an inventory again, which may still have been
 * allocating. What the answers lead to is carried out when this returns. */
static void ask_again(struct recover *r)
{
    if (clock_ms() < r->ask_again_ms) {
        return;
    }
    r->ask_again_ms = clock_ms() + ASK_AGAIN_MS;
    r->running = true;
    if (recovery_phase(r->machine) == RECOVERY_ASKING) {
        recover_ask_silent(r);
    }
    repeat_fetches(r);
    r->running = false;
}

/* ---- outcome ----------------------------------------------------------------------------------------------------- */

static void feed_coordinator(struct term_context *tc, enum event_type type, struct version version)
{
    struct event event = {.type = type, .version = version};
    driver_step_coordinator(tc, &event);
}

static void keep_base(const struct recover *r)
{
    const struct plan *plan = recovery_plan(r->machine);
    hard_state_put_base(r->all->needs.state, r->tc->world.term, plan->version, plan->passed_text);
}

static void log_passed_over(const struct plan *plan, struct version version)
{
    if (plan->passed_text[0] != '\0') {
        log_warn("an older version, %" PRIu64 ".%" PRIu64 ", is restored: %s", version.term, version.step,
                 plan->passed_text);
    }
}

/* Trainers learn the base only after it is in the kept decision: if this agent dies right afterwards, it must continue
 * with the same base. */
static void announce_if_kept(struct recover *r)
{
    const struct plan *plan = recovery_plan(r->machine);
    const struct decision *d = coordinator_decision(r->tc->coordinator);
    struct version version = plan->version;
    if (!d->readable) {
        keep_base(r);
        feed_coordinator(r->tc, EVENT_READABLE, version);
    }
    if (!d->readable || !version_is(d->base, version)) {
        return; /* the event is still queued: the next tick tries again */
    }
    failpoint(recovery, readable);
    r->unsaid = false;
    r->all->counts.restored++;
    r->all->counts.last_ms = clock_ms() - r->started_ms;
    log_info("version %" PRIu64 ".%" PRIu64 " can be read by all ranks (%" PRIu64 " ms)%s%s", version.term,
             version.step, r->all->counts.last_ms, plan->passed_count ? "; newer ones were skipped: " : "",
             plan->passed_count ? plan->reason : "");
    log_passed_over(plan, version);
    broadcast_readable(r, TCK_OK, version, plan->reason);
    failpoint(recovery, told);
}

static void feed_based(struct recover *r, struct version version)
{
    feed_coordinator(r->tc, EVENT_BASED, version);
}

/* After the trainers are told. Repeated until the decision says so: an event that finds no memory is lost. */
static void end_if_based(struct recover *r)
{
    struct version version = recovery_plan(r->machine)->version;
    if (r->unsaid) {
        return;
    }
    failpoint(recovery, protected);
    feed_based(r, version);
    if (!coordinator_decision(r->tc->coordinator)->based) {
        return;
    }
    r->unbased = false;
    r->ended = true;
    log_info("version %" PRIu64 ".%" PRIu64 " has all its copies again", version.term, version.step);
    failpoint(recovery, based);
}

static void report_nothing(struct recover *r)
{
    const struct plan *plan = recovery_plan(r->machine);
    char reason[ERROR_TEXT_BYTES];
    tck_status_t failure = recovery_failure(r->machine);
    bool explained = r->fetch_error[0] != '\0' && failure == r->fetch_outcome;
    snprintf(reason, sizeof(reason), "%.*s%s%.200s", explained ? 300 : (int)sizeof(reason) - 1,
             plan != NULL ? plan->reason : "no plan could be made", explained ? ": " : "",
             explained ? r->fetch_error : "");
    r->ended = true;
    bool resharded = failure == TCK_ERR_LAYOUT && plan != NULL && !version_none(plan->reshard);
    if (failure == TCK_ERR_NOENT || resharded) {
        log_info("nothing to restore: %s", reason);
    } else {
        log_error("nothing can be restored: %s", reason);
    }
    r->all->counts.fresh += failure == TCK_ERR_NOENT;
    r->all->counts.resharded += resharded;
    r->all->counts.failed += failure != TCK_ERR_NOENT && !resharded;
    if (failure == TCK_ERR_NOENT) {
        feed_based(r, VERSION_NONE);
    }
    broadcast_readable(r, failure, plan != NULL && failure == TCK_ERR_LAYOUT ? plan->reshard : VERSION_NONE, reason);
}

/* Older versions are kept: until this term commits, only they can be restored. */
static void on_base_lost(struct recover *r, struct version base)
{
    log_warn("version %" PRIu64 ".%" PRIu64
             ", which this term restored, is lost: no good copy of a part of it is left; its slots "
             "are freed, and a loss before the next commit falls back to an older version",
             base.term, base.step);
    r->all->counts.bases_lost++;
    feed_coordinator(r->tc, EVENT_BASE_LOST, base);
}

static void recover_start(struct recoveries *rs, struct term_context *tc, uint64_t step);

/* The cause of the failure may have ended: a member that was down for too long may be back. */
static void start_over(struct recover *r)
{
    struct recoveries *rs = r->all;
    struct term_context *tc = r->tc;
    uint64_t step = r->step;
    recover_end(rs);
    recover_start(rs, tc, step);
}

void recover_refused(struct recoveries *rs, struct term_context *tc, enum refusal refusal)
{
    struct recover *r = rs->now;
    const struct decision *d = coordinator_decision(tc->coordinator);
    bool lacks_slot = refusal == REFUSAL_NO_SLOT || refusal == REFUSAL_NOT_YET;
    if (!lacks_slot || r == NULL || r->running) {
        return; /* refusals repeat */
    }
    switch (recovery_free_slots(r->machine, d)) {
    case RELIEF_NONE:
        break;
    case RELIEF_PRESS:
        recover_step(r, (struct recovery_event){.type = RECOVERY_EVENT_SLOTS_NEEDED});
        break;
    case RELIEF_BASE_LOST:
        on_base_lost(r, d->base);
        break;
    case RELIEF_BEGIN_AGAIN:
        start_over(r);
        break;
    case RELIEF_NO_BASE:
        log_warn("the trainers save although nothing could be restored: freeing the slots of older terms");
        feed_based(r, VERSION_NONE);
        break;
    }
}

static void release_outsiders(struct recover *r)
{
    struct peers *peers = r->all->needs.peers;
    for (size_t i = peers_count(peers); i-- > 0;) {
        struct peer *peer = peers_at(peers, i);
        if (id_map_find(&r->outsiders, peer_node(peer)->agent_id) != ID_MAP_NONE) {
            peers_unwant(peers, peer);
        }
    }
    id_map_free(&r->outsiders);
}

static void carry_out(struct recover *r, const struct recovery_action *a)
{
    switch (a->type) {
    case RECOVERY_ASK:
        recover_ask_all(r);
        break;
    case RECOVERY_LIST:
        recover_list_storage(r, (struct survey_range){.newest = a->newest, .step = a->step});
        break;
    case RECOVERY_FETCH:
        failpoint(recovery, planned);
        send_fetch(r, a);
        break;
    case RECOVERY_READY:
        r->unsaid = true;
        announce_if_kept(r);
        break;
    case RECOVERY_PROTECTED:
        r->unbased = true;
        end_if_based(r);
        break;
    case RECOVERY_BASE_LOST:
        r->ended = true;
        on_base_lost(r, a->version);
        break;
    case RECOVERY_NOTHING:
        r->ended = true;
        report_nothing(r);
        break;
    }
}

/* An action that is carried out may step the machine, which adds further ones. */
static void carry_out_all(struct recover *r)
{
    for (uint32_t i = 0; i < r->actions.count; i++) {
        struct recovery_action action = r->actions.items[i];
        if (!r->ended) {
            carry_out(r, &action);
        }
    }
    r->actions.count = 0;
}

/* Frees what only a running recovery needs. */
static void release(struct recover *r)
{
    recover_forget_fetches(r);
    release_outsiders(r);
}

static void run(struct recover *r)
{
    if (r->running) {
        return;
    }
    r->running = true;
    carry_out_all(r);
    r->running = false;
    if (r->ended) {
        release(r);
    }
}

void recover_end(struct recoveries *rs)
{
    if (rs->now != NULL) {
        recover_destroy(rs->now);
        rs->now = NULL;
    }
    recover_dry_free(rs);
}

/* ---- beginning ----------------------------------------------------------------------------------------------- */

static struct recover *recover_make(struct recoveries *rs, struct term_context *tc, uint64_t step)
{
    struct recover *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return NULL;
    }
    r->all = rs;
    r->tc = tc;
    r->step = step;
    r->run = run;
    r->started_ms = clock_ms();
    r->answered = calloc(tc->world.node_count, sizeof(*r->answered));
    struct recovery_setup setup = {.world = &tc->world,
                                   .unused_terms = reservation_unused(rs->needs.reservations, tc->world.term),
                                   .placement = &tc->placement,
                                   .wait_ms = rs->needs.config->restore_wait_ms,
                                   .max_tries = FETCH_TRIES,
                                   .storage_wait_ms = STORAGE_WAIT_MS,
                                   .storage_hang_ms = STORAGE_HANG_MS,
                                   .first_owner_suffices = rs->needs.config->restore_spread != SPREAD_AGENTS};
    if (r->answered == NULL || recovery_actions_init(&r->actions) != TCK_OK ||
        recovery_new(&setup, &r->machine) != TCK_OK) {
        recover_destroy(r);
        return NULL;
    }
    return r;
}

static void log_beginning(const struct term_context *tc, uint64_t step)
{
    const struct decision *d = coordinator_decision(tc->coordinator);
    log_info("recovery of term %" PRIu64 " begins: %s", tc->world.term,
             d->readable          ? "resumed, with the version chosen before the restart"
             : step == TCK_NEWEST ? "the newest version is requested"
                                  : "a given step is requested");
}

/* The recovery is due at each tick until it has begun. */
static void log_shortage(struct recoveries *rs, const struct term_context *tc)
{
    if (!rs->short_of_memory) {
        log_error("recovery of term %" PRIu64 " cannot begin, since this agent is out of memory; it is tried again",
                  tc->world.term);
    }
}

/* A base chosen before a restart of this agent is final: trainers may have read it. */
static void recover_start(struct recoveries *rs, struct term_context *tc, uint64_t step)
{
    const struct decision *d = coordinator_decision(tc->coordinator);
    struct recover *r = rs->now = recover_make(rs, tc, step);
    if (r == NULL) {
        log_shortage(rs, tc);
        rs->short_of_memory = true;
        return;
    }
    rs->short_of_memory = false;
    log_beginning(tc, step);
    failpoint(recovery, begins);
    if (d->readable) {
        recover_step(r, (struct recovery_event){.type = RECOVERY_EVENT_RESUME, .version = d->base});
    } else {
        recover_step(r, (struct recovery_event){.type = RECOVERY_EVENT_START, .step = step});
    }
    run(r);
}

static bool all_registered(const struct term_context *tc)
{
    return tc->registered_count == tc->world.node_count;
}

/* To one node: each node whose trainers restore asks for itself, so that an answer to all of them for every question
 * would be as many messages as there are pairs of nodes. */
static void answer(const struct recoveries *rs, struct term_context *tc, uint32_t node, const struct wire_readable *m)
{
    struct writer w = writer_new(0);
    wire_readable_encode(m, &w);
    if (node == tc->self) {
        restore_readable(rs->needs.restore, tc, m);
    } else {
        rpc_send(tc, node, WIRE_READABLE, &w);
    }
    writer_free(&w);
}

static void refuse(const struct recoveries *rs, struct term_context *tc, uint32_t node, uint64_t step,
                   const char *reason)
{
    struct wire_readable m = {.term = tc->world.term, .asked_step = step, .outcome = TCK_ERR_BUSY};
    snprintf(m.reason, sizeof(m.reason), "%s", reason);
    answer(rs, tc, node, &m);
}

/* True if a rank of this node will ask for a given step, and has not done so yet. */
static bool will_be_asked(const struct recoveries *rs, const struct term_context *tc)
{
    for (const struct client *c = *rs->needs.clients; c != NULL; c = c->next) {
        if (c->trainer && c->will_ask && c->term == tc->world.term) {
            return true;
        }
    }
    return false;
}

/* Called by events as well as by ticks: a restore from memory takes less than a tick. */
static void start_if_due(struct recoveries *rs, struct term_context *tc)
{
    struct restore_due due = {.decision = coordinator_decision(tc->coordinator),
                              .recovering = rs->now != NULL,
                              .all_registered = all_registered(tc),
                              .asked = tc->asked,
                              .will_be_asked = will_be_asked(rs, tc),
                              .waited_ms = clock_ms() - tc->all_registered_ms};
    if (restore_is_due(&due)) {
        recover_start(rs, tc, tc->asked ? tc->asked_step : TCK_NEWEST);
    }
}

void recover_registered(struct recoveries *rs, struct term_context *tc, uint32_t node)
{
    if (!tc->registered[node]) {
        tc->registered[node] = true;
        tc->registered_count++;
        if (all_registered(tc)) {
            tc->all_registered_ms = clock_ms();
            start_if_due(rs, tc);
        }
    }
    if (tc->readable_known) {
        answer(rs, tc, node, &tc->readable);
    }
}

static void answer_again(const struct recoveries *rs, struct term_context *tc, uint32_t node, uint64_t step)
{
    tc->readable.asked_step = step;
    answer(rs, tc, node, &tc->readable);
}

/* Repeats the answer that this agent lost when it restarted. */
static void answer_kept_base(const struct recoveries *rs, struct term_context *tc, uint32_t node, uint64_t step)
{
    struct version base = coordinator_decision(tc->coordinator)->base;
    tc->readable = (struct wire_readable){.term = tc->world.term, .version = base, .newest_step = base.step};
    snprintf(tc->readable.passed_over, sizeof(tc->readable.passed_over), "%s",
             hard_state_passed_over(rs->needs.state, base));
    tc->readable_known = true;
    answer_again(rs, tc, node, step);
}

static enum restore_reply reply_to(const struct recoveries *rs, const struct term_context *tc, uint64_t step)
{
    const struct recover *r = rs->now;
    struct restore_question question = {.step = step,
                                        .decision = coordinator_decision(tc->coordinator),
                                        .recovering = r != NULL,
                                        .ended = r != NULL && r->ended,
                                        .recovery_step = r != NULL ? r->step : 0,
                                        .answered = tc->readable_known,
                                        .answered_step = tc->readable.asked_step};
    return restore_reply(&question);
}

void recover_restore_ask(struct recoveries *rs, struct term_context *tc, uint32_t node, uint64_t step)
{
    static const char *const refused[] = {[RESTORE_BASE_LOST] =
                                              "the version that this term restored is lost: attach again",
                                          [RESTORE_SAVED] = "this term has saved since it began: attach again",
                                          [RESTORE_NO_BASE] = "this term began without a version: attach again",
                                          [RESTORE_OTHER] = "this term has recovered another version: attach again"};
    enum restore_reply reply = reply_to(rs, tc, step);
    switch (reply) {
    case RESTORE_BEGIN:
        tc->asked_step = step;
        tc->asked = true;
        start_if_due(rs, tc);
        break;
    case RESTORE_UNDER_WAY:
        break;
    case RESTORE_ANSWERED:
        answer_again(rs, tc, node, step);
        break;
    case RESTORE_KEPT_BASE:
        answer_kept_base(rs, tc, node, step);
        break;
    case RESTORE_BASE_LOST:
    case RESTORE_SAVED:
    case RESTORE_NO_BASE:
    case RESTORE_OTHER:
        refuse(rs, tc, node, step, refused[reply]);
        break;
    }
}

/* ---- time ----------------------------------------------------------------------------------------- */

/* Once this term has committed, it needs no older version. */
static void end_if_committed(struct recoveries *rs, struct term_context *tc)
{
    const struct decision *d = coordinator_decision(tc->coordinator);
    struct recover *r = rs->now;
    if (d->based || d->watermark.term != tc->world.term) {
        return;
    }
    log_info("term %" PRIu64 " has committed: its recovery is over", tc->world.term);
    feed_coordinator(tc, EVENT_BASED, VERSION_NONE);
    if (r != NULL && !r->ended) {
        r->ended = true;
        release(r);
    }
}

struct recovery_counts recoveries_counts(const struct recoveries *rs)
{
    struct recovery_counts counts = rs->counts;
    counts.under_way_since_ms = rs->now != NULL && !rs->now->ended ? rs->now->started_ms : 0;
    return counts;
}

void recover_tick(struct recoveries *rs, struct term_context *tc)
{
    if (tc->coordinator != NULL) {
        end_if_committed(rs, tc);
        start_if_due(rs, tc);
    }
    struct recover *r = rs->now;
    if (r != NULL && !r->ended) {
        ask_again(r);
        recover_step(r, (struct recovery_event){.type = RECOVERY_EVENT_TICK});
        if (r->unsaid) {
            announce_if_kept(r);
        }
        if (r->unbased) {
            end_if_based(r);
        }
        run(r);
    }
    recover_dry_tick(rs);
}

static void take_inventory(struct recover *r, struct peer *from, const struct wire_inventory *m)
{
    struct inventory inv;
    tck_status_t status = inventory_decode(m->inventory, m->inventory_len, &inv);
    if (status != TCK_OK) {
        log_warn("the inventory of node %s, of %zu bytes, cannot be read: %s", peer_node(from)->name,
                 (size_t)m->inventory_len, status_text(status));
        return;
    }
    recover_add_outsiders(r, m->known, m->known_count);
    recover_take_inventory(r, rpc_node_of(r->tc, from), &inv);
}

void recover_inventory(struct recoveries *rs, struct peer *from, const struct wire_inventory *m)
{
    struct recover *r = rs->now;
    struct recover *dry = rs->dry;
    if (r != NULL && r->asking == m->asking && !r->ended) {
        take_inventory(r, from, m);
        run(r);
    } else if (dry != NULL && dry->asking == m->asking && !dry->ended) {
        take_inventory(dry, from, m);
    }
}

void recover_fetched(struct recoveries *rs, uint32_t node, const struct wire_fetched *m)
{
    struct recover *r = rs->now;
    if (r != NULL && !r->ended && asked_take(&r->asked, m->number, node)) {
        if (m->outcome == TCK_ERR_IO || m->outcome == TCK_ERR_NOSPC) {
            r->fetch_outcome = (tck_status_t)m->outcome;
            snprintf(r->fetch_error, sizeof(r->fetch_error), "%s", m->reason);
        }
        report_fetched(r, node, m->shard, m->version, (tck_status_t)m->outcome);
        run(r);
    }
}

void recover_node(struct recoveries *rs, uint32_t node, bool up)
{
    struct recover *r = rs->now;
    if (r == NULL || r->ended) {
        return;
    }
    recover_step(r,
                 (struct recovery_event){.type = up ? RECOVERY_EVENT_NODE_UP : RECOVERY_EVENT_NODE_DOWN, .node = node});
    run(r);
}

static void ask_if_wanted(struct recover *r, struct peer *peer)
{
    if (r == NULL || r->ended || (r->machine != NULL && recovery_phase(r->machine) != RECOVERY_ASKING)) {
        return;
    }
    uint32_t node = rpc_node_of(r->tc, peer);
    if (node == NONE32 ? !recover_is_outsider(r, peer_node(peer)) : !r->answered[node]) {
        recover_ask_peer(r, peer);
    }
}

void recover_peer_up(struct recoveries *rs, struct peer *peer)
{
    ask_if_wanted(rs->now, peer);
    ask_if_wanted(rs->dry, peer);
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

tck_status_t recoveries_new(const struct recoveries_setup *setup, struct recoveries **out, struct error *err)
{
    struct recoveries *rs = calloc(1, sizeof(*rs));
    if (rs == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    rs->needs = *setup;
    rs->number = clock_ms() << 20; /* above the numbers of this agent before its restart */
    *out = rs;
    return TCK_OK;
}

void recoveries_free(struct recoveries *rs)
{
    free(rs);
}
