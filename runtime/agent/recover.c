/* SPDX-License-Identifier: Apache-2.0
 * Recovery as the coordinator leads it: which node fetches what, and what is said when it is done. The decisions are
 * made by recovery/recovery.c; this file carries them out. */
#include "agent/recover_internal.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define FETCH_TRIES  4
#define GRACE_MS     1500 /* trainers that ask for a given step come first; after this the newest is recovered unasked */
#define ASK_AGAIN_MS 2000 /* fetches without an outcome */

/* ---- what the machine says ----------------------------------------------------------------------------------- */

static uint64_t newest_step_seen(const struct recover *r)
{
    const struct plan *plan = recovery_plan(r->machine);
    return plan ? plan->newest_seen.step : 0;
}

static void say_readable(struct recover *r, tck_status_t outcome, struct version version, const char *reason)
{
    struct formation *f = r->f;
    struct wire_readable m = {.term = f->world.term,
                              .asked_step = r->step,
                              .outcome = outcome,
                              .version = version,
                              .newest_step = newest_step_seen(r)};
    snprintf(m.reason, sizeof m.reason, "%s", reason);
    struct writer w = writer_new(0);
    wire_readable_encode(&m, &w);
    for (uint32_t n = 0; n < f->world.node_count; n++) {
        if (n != f->self) {
            exchange_send(f, n, WIRE_READABLE, &w);
        }
    }
    writer_free(&w);
    restore_readable(f, &m);
}

/* Newest commit that any agent knew of: a node may give up what is newer, never that. */
static struct version newest_commit_known(const struct recover *r)
{
    const struct plan_input *input = recovery_input(r->machine);
    struct version floor = VERSION_NONE;
    for (uint32_t i = 0; input && i < input->inventory_count; i++) {
        if (version_cmp(input->inventories[i].watermark, floor) > 0) {
            floor = input->inventories[i].watermark;
        }
    }
    return floor;
}

static void say_fetch(struct recover *r, const struct recovery_action *a)
{
    struct wire_fetch m = {.term = r->f->world.term,
                           .shard = a->shard,
                           .version = a->version,
                           .floor = newest_commit_known(r),
                           .source = a->source};
    if (a->source == SOURCE_TWIN || a->source == SOURCE_PEER) {
        m.from = a->from;
    }
    if (a->node == r->f->self) {
        fetch_asked(r->f, &m);
        return;
    }
    struct writer w = writer_new(0);
    wire_fetch_encode(&m, &w);
    exchange_send(r->f, a->node, WIRE_FETCH, &w);
    writer_free(&w);
}

/* Asked again until there is an outcome: a message may be lost, and asking twice does no harm. */
static void send_fetch(struct recover *r, const struct recovery_action *a)
{
    struct asked_fetch *x = calloc(1, sizeof *x);
    if (x) {
        *x = (struct asked_fetch){.next = r->asked, .action = *a};
        r->asked = x;
    }
    say_fetch(r, a);
}

static void ask_fetches_again(struct recover *r)
{
    if (clock_ms() < r->ask_again_ms) {
        return;
    }
    r->ask_again_ms = clock_ms() + ASK_AGAIN_MS;
    for (const struct asked_fetch *x = r->asked; x; x = x->next) {
        if (x->action.node != r->f->self) {
            say_fetch(r, &x->action);
        }
    }
}

/* True if that fetch was still without an outcome. */
static bool take_asked(struct recover *r, uint32_t node, const struct wire_fetched *m)
{
    for (struct asked_fetch **at = &r->asked; *at; at = &(*at)->next) {
        const struct recovery_action *a = &(*at)->action;
        if (a->node == node && a->shard == m->shard && version_is(a->version, m->version)) {
            struct asked_fetch *x = *at;
            *at = x->next;
            free(x);
            return true;
        }
    }
    return false;
}

static void forget_asked(struct recover *r)
{
    while (r->asked) {
        struct asked_fetch *x = r->asked;
        r->asked = x->next;
        free(x);
    }
}

/* The version that killed the job again and again is not tried for ever. */
static bool too_many_tries(struct recover *r, struct version version)
{
    struct agent *agent = r->f->agent;
    uint32_t tries = 0;
    struct error err;
    r->poison_checked = true;
    if (r->step != TCK_NEWEST ||
        persistent_restore_tries(agent->persistent, r->f->world.term, version, &tries, &err) != TCK_OK ||
        tries < agent->config.max_restore_tries) {
        return false;
    }
    log_error("version %llu.%llu was restored %u times and nothing was committed after it: it is given up, the one "
              "before is used",
              (unsigned long long)version.term, (unsigned long long)version.step, tries);
    r->give_up = version;
    return true;
}

static void ready(struct recover *r, struct version version)
{
    const struct plan *plan = recovery_plan(r->machine);
    ledger_restored(r->f, version);
    log_info("version %llu.%llu can be read by all ranks (%llu ms)%s%s", (unsigned long long)version.term,
             (unsigned long long)version.step, (unsigned long long)(clock_ms() - r->started_ms),
             plan && plan->passed_count ? "; newer ones were passed over: " : "",
             plan && plan->passed_count ? plan->reason : "");
    say_readable(r, TCK_OK, version, plan ? plan->reason : "");
}

static void based(struct recover *r, struct version version)
{
    struct event event = {.type = EVENT_BASED, .version = version};
    drive_coordinator(r->f, &event);
}

static void nothing(struct recover *r)
{
    const struct plan *plan = recovery_plan(r->machine);
    bool fresh = plan && plan->nothing_saved;
    r->ended = true;
    log_info("nothing to restore: %s", plan ? plan->reason : "no plan could be made");
    say_readable(r, fresh ? TCK_ERR_NOENT : TCK_ERR_UNRECOVERABLE, VERSION_NONE, plan ? plan->reason : "no plan");
    if (fresh) {
        based(r, VERSION_NONE);
    }
}

void recover_refused(struct formation *f, enum refusal refusal)
{
    struct recover *r = f->agent->recover;
    if (r && r->ended && refusal == REFUSAL_NO_SLOT && f->readable_known &&
        f->readable.outcome == TCK_ERR_UNRECOVERABLE && !coordinator_decision(f->coordinator)->based) {
        log_warn("the trainers save though nothing could be restored: what is left of older terms makes room");
        based(r, VERSION_NONE);
    }
}

static void let_strangers_go(struct recover *r)
{
    struct agent *agent = r->f->agent;
    for (size_t i = peers_count(agent->peers); i-- > 0;) {
        struct peer *peer = peers_at(agent->peers, i);
        for (uint32_t s = 0; s < r->stranger_count; s++) {
            if (peer_node(peer)->agent_id == r->strangers[s].agent_id) {
                peers_unwant(agent->peers, peer);
                break;
            }
        }
    }
    r->stranger_count = 0;
}

static void carry_out(struct recover *r, const struct recovery_action *a)
{
    switch (a->type) {
    case RECOVERY_ASK:
        recover_ask_all(r);
        break;
    case RECOVERY_LIST:
        recover_list_storage(r);
        break;
    case RECOVERY_FETCH:
        if (!r->poison_checked && too_many_tries(r, a->version)) {
            r->poisoned = true;
        } else {
            send_fetch(r, a);
        }
        break;
    case RECOVERY_READY:
        ready(r, a->version);
        break;
    case RECOVERY_PROTECTED:
        r->ended = true;
        log_info("version %llu.%llu has its copies again", (unsigned long long)a->version.term,
                 (unsigned long long)a->version.step);
        based(r, a->version);
        break;
    case RECOVERY_NOTHING:
        r->ended = true;
        nothing(r);
        break;
    }
}

/* The machine must not be called from its own emit: actions wait until it has returned. */
static void emit(void *ctx, const struct recovery_action *a)
{
    struct recover *r = ctx;
    if (r->queue_count == r->queue_cap) {
        uint32_t cap = r->queue_cap ? 2 * r->queue_cap : 64;
        struct recovery_action *grown = realloc(r->queue, cap * sizeof *grown);
        if (!grown) {
            log_error("out of memory: a step of the recovery is lost");
            return;
        }
        r->queue = grown;
        r->queue_cap = cap;
    }
    r->queue[r->queue_count++] = *a;
}

static void run_queue(struct recover *r)
{
    for (uint32_t i = 0; i < r->queue_count; i++) {
        struct recovery_action action = r->queue[i];
        if (!r->poisoned && !r->ended) {
            carry_out(r, &action);
        }
    }
    r->queue_count = 0;
    if (r->poisoned) { /* its plan is given up: again, without that version */
        r->poisoned = false;
        forget_asked(r);
        recovery_begin(r->machine, r->step, clock_ms());
    }
}

void recover_run(struct recover *r)
{
    if (r->running) {
        return;
    }
    r->running = true;
    while (r->queue_count > 0) {
        run_queue(r);
    }
    r->running = false;
    if (r->ended) {
        forget_asked(r);
        let_strangers_go(r);
    }
}

void recover_destroy(struct recover *r)
{
    if (r->listing) {
        r->doomed = true;
        return;
    }
    if (r->machine) {
        recovery_free(r->machine);
    }
    for (uint32_t i = 0; i < r->inventory_count; i++) {
        inventory_free(&r->inventories[i]);
    }
    free(r->inventories);
    recover_free_stored(r);
    forget_asked(r);
    free(r->queue);
    free(r->strangers);
    free(r->answered);
    free(r);
}

void recover_free(struct agent *agent)
{
    if (agent->recover) {
        recover_destroy(agent->recover);
        agent->recover = NULL;
    }
    recover_dry_free(agent);
}

/* ---- beginning ----------------------------------------------------------------------------------------------- */

static struct recover *recover_make(struct formation *f, uint64_t step)
{
    struct recover *r = calloc(1, sizeof *r);
    if (!r) {
        return NULL;
    }
    r->f = f;
    r->step = step;
    r->started_ms = clock_ms();
    r->answered = calloc(f->world.node_count, sizeof *r->answered);
    struct recovery_setup setup = {.world = &f->world,
                                   .placement = &f->placement,
                                   .wait_ms = f->agent->config.restore_wait_ms,
                                   .max_tries = FETCH_TRIES};
    if (!r->answered || recovery_new(&setup, emit, r, &r->machine) != TCK_OK) {
        free(r->answered);
        free(r);
        return NULL;
    }
    return r;
}

static void recover_start(struct formation *f, uint64_t step)
{
    log_info("recovery of term %llu begins: %s", (unsigned long long)f->world.term,
             step == TCK_NEWEST ? "the newest version is wanted" : "a given step is wanted");
    f->agent->recover = recover_make(f, step);
    if (f->agent->recover) {
        recovery_begin(f->agent->recover->machine, step, clock_ms());
        recover_run(f->agent->recover);
    }
}

static void answer_otherwise(struct formation *f, uint64_t step, tck_status_t outcome, const char *reason)
{
    struct wire_readable m = {.term = f->world.term, .asked_step = step, .outcome = outcome};
    snprintf(m.reason, sizeof m.reason, "%s", reason);
    struct writer w = writer_new(0);
    wire_readable_encode(&m, &w);
    for (uint32_t n = 0; n < f->world.node_count; n++) {
        if (n != f->self) {
            exchange_send(f, n, WIRE_READABLE, &w);
        }
    }
    writer_free(&w);
    restore_readable(f, &m);
}

static bool all_registered(const struct formation *f)
{
    return f->registered_count == f->world.node_count;
}

static void say_again(struct formation *f, uint32_t node)
{
    struct writer w = writer_new(0);
    wire_readable_encode(&f->readable, &w);
    if (node == f->self) {
        restore_readable(f, &f->readable);
    } else {
        exchange_send(f, node, WIRE_READABLE, &w);
    }
    writer_free(&w);
}

/* As soon as all is known that it needs, not at the next tick: a restore from memory takes less than a tick. */
static void start_if_due(struct formation *f)
{
    if (f->coordinator && !f->agent->recover && all_registered(f) && !coordinator_decision(f->coordinator)->based &&
        (f->asked || clock_ms() - f->all_registered_ms >= GRACE_MS)) {
        recover_start(f, f->asked ? f->asked_step : TCK_NEWEST);
    }
}

void recover_registered(struct formation *f, uint32_t node)
{
    if (!f->registered[node]) {
        f->registered[node] = true;
        f->registered_count++;
        if (all_registered(f)) {
            f->all_registered_ms = clock_ms();
            start_if_due(f);
        }
    }
    if (f->readable_known) {
        say_again(f, node);
    }
}

/* A question when the recovery is over: what was said is said again, and what is known already after an agent's restart
 * is said anew. False if another version was recovered. */
static bool answer_again(struct formation *f, uint64_t step)
{
    const struct decision *d = coordinator_decision(f->coordinator);
    if (f->readable_known && f->readable.asked_step == step) {
        for (uint32_t n = 0; n < f->world.node_count; n++) {
            say_again(f, n);
        }
        return true;
    }
    if (f->agent->recover || step != TCK_NEWEST) {
        return false;
    }
    f->readable = (struct wire_readable){.term = f->world.term,
                                         .asked_step = step,
                                         .outcome = version_none(d->watermark) ? TCK_ERR_NOENT : TCK_OK,
                                         .version = d->watermark,
                                         .newest_step = d->watermark.step,
                                         .reason = "nothing was saved"};
    f->readable_known = true;
    return answer_again(f, step);
}

void recover_restore_ask(struct formation *f, uint64_t step)
{
    struct recover *r = f->agent->recover;
    if (r && r->step == step && !f->readable_known) {
        return; /* under way */
    }
    if (r || coordinator_decision(f->coordinator)->based) {
        if (!answer_again(f, step)) {
            answer_otherwise(f, step, TCK_ERR_BUSY,
                             "this term has recovered another version already: attach anew to restore a given step");
        }
        return;
    }
    f->asked_step = step;
    f->asked = true;
    start_if_due(f);
}

/* ---- as time goes on ----------------------------------------------------------------------------------------- */

void recover_tick(struct formation *f)
{
    start_if_due(f);
    struct recover *r = f->agent->recover;
    if (r && !r->ended) {
        ask_fetches_again(r);
        recovery_tick(r->machine, clock_ms());
        recover_run(r);
    }
    recover_dry_tick(f->agent);
}

static void recover_heard(struct recover *r, struct peer *from, const struct wire_inventory *m)
{
    struct inventory inv;
    struct error err;
    if (inventory_decode(m->inventory, m->inventory_len, &inv, &err) != TCK_OK) {
        log_warn("malformed inventory of node %s: %s", peer_node(from)->name, err.text);
        return;
    }
    recover_add_strangers(r, m->known, m->known_count);
    recover_take_inventory(r, exchange_node_of(r->f, from), &inv);
}

void recover_inventory(struct formation *f, struct peer *from, const struct wire_inventory *m)
{
    struct recover *r = f->agent->recover;
    struct recover *dry = f->agent->dry;
    if (r && r->asking == m->asking && !r->ended) {
        recover_heard(r, from, m);
        recover_run(r);
    } else if (dry && dry->asking == m->asking && !dry->ended) {
        recover_heard(dry, from, m);
    }
}

void recover_fetched(struct formation *f, uint32_t node, const struct wire_fetched *m)
{
    struct recover *r = f->agent->recover;
    if (r && !r->ended && take_asked(r, node, m)) {
        recovery_fetched(r->machine, node, m->shard, m->version, (tck_status_t)m->outcome, clock_ms());
        recover_run(r);
    }
}

void recover_node(struct formation *f, uint32_t node, bool up)
{
    struct recover *r = f->agent->recover;
    if (!r || r->ended) {
        return;
    }
    if (up) {
        recovery_node_up(r->machine, node);
    } else {
        recovery_node_down(r->machine, node, clock_ms());
        recover_run(r);
    }
}

static void ask_if_wanted(struct recover *r, struct peer *peer)
{
    if (!r || r->ended || (r->machine && recovery_phase(r->machine) != RECOVERY_ASKING)) {
        return;
    }
    uint32_t node = exchange_node_of(r->f, peer);
    if (node == NONE32 ? !recover_is_stranger(r, peer_node(peer)) : !r->answered[node]) {
        recover_ask_peer(r, peer);
    }
}

void recover_peer_up(struct agent *agent, struct peer *peer)
{
    ask_if_wanted(agent->recover, peer);
    ask_if_wanted(agent->dry, peer);
}
