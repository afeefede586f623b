/* SPDX-License-Identifier: Apache-2.0
 * Throttles copies and drains. While something is to be sent that may be throttled, a timer samples the trainers'
 * steps and the network, and lets what is throttled ask again. */
#include "agent/pace/pacing.h"

#include "agent/driver/term_context.h"
#include "agent/ipc/client.h"
#include "agent/pace/nic_counter.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/message.h"
#include "core/net_phase.h"
#include "core/net_steps.h"
#include "core/pace.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#define NIC_DIR    "/sys/class/net"
#define TICK_MS    2
#define NS_PER_MS  1000000u
#define PPM        1e6
#define REST_STEPS 2u         /* no step for so many times its usual time, */
#define REST_NS    100000000u /* and this: the training rests, so nothing can disturb it */
#define SAVE_STEPS 2u         /* a snapshot is copied in the steps right after it was begun */
#define NEVER      UINT64_MAX

#define DRAIN_LONGEST_MS UINT64_C(600000)

struct pace_state {
    struct pace_lane lane;
    uint32_t ops;          /* under way */
    enum pacing_wait wait; /* of one of them, until the timer lets it ask again */
    double rate;
};

struct pacing {
    struct pacing_setup needs;
    struct loop_timer *timer;
    bool runs; /* the timer */
    struct pace_state lanes[LANES];
    struct governor governor;
    struct net_phase phase;
    struct net_steps steps;
    struct nic_counter nic;
    bool nic_tried;
    /* The training, as seen by the timer. */
    uint64_t step, step_at_ns; /* 0: unknown */
    uint64_t save_step;        /* the newest one whose save has begun */
    uint64_t pending_ns;       /* since when there has been something to send; NEVER: there is nothing */
    bool sent;                 /* in the present step */
};

static double target_of(const struct pacing *p)
{
    return p->needs.config->target_inflation_ppm / PPM;
}

/* ---- the training ------------------------------------------------------------------------------------------------ */

/* The status page of a trainer of the term in force; they make their steps together. NULL: there is none. */
static const struct shared_status *trainer(const struct pacing *p)
{
    const struct term_context *tc = *p->needs.term;
    const struct client *c = *p->needs.clients;
    while (c != NULL && !(c->trainer && tc != NULL && !tc->closed && c->term == tc->world.term)) {
        c = c->next;
    }
    return c != NULL ? c->shared : NULL;
}

static bool rests(const struct pacing *p, uint64_t now_ns)
{
    const struct shared_status *s = trainer(p);
    if (s == NULL) {
        return true;
    }
    uint64_t at_ns = atomic_load_explicit(&s->step_at_ns, memory_order_relaxed);
    uint64_t step_ns = atomic_load_explicit(&s->step_ns, memory_order_relaxed);
    return at_ns == 0 || step_ns == 0 || now_ns > at_ns + REST_STEPS * step_ns + REST_NS;
}

static uint64_t term_of(const struct pacing *p)
{
    return (*p->needs.term)->world.term;
}

/* Nothing is sent in the step that is being made, so that the time of others can be compared with its. */
static bool is_quiet(const struct pacing *p)
{
    return p->step != 0 && inflation_window(term_of(p), p->step + 1) == WINDOW_QUIET;
}

static void log_change(const struct pacing *p)
{
    const struct inflation *e = &p->governor.estimate;
    log_info("copies and drains make steps %.2f %% longer (95 %%: %.2f to %.2f): their versions are now spread over "
             "%.0f %% of the interval",
             100 * e->mean, 100 * e->low, 100 * e->high, 100 * p->governor.spread);
}

static void step_ended(struct pacing *p, uint64_t step, uint64_t at_ns)
{
    const struct step_seen seen = {.step = step,
                                   .took_ns = at_ns - p->step_at_ns,
                                   .saves = step > p->save_step && step <= p->save_step + SAVE_STEPS,
                                   .pending = p->pending_ns <= p->step_at_ns,
                                   .sent = p->sent};
    if (governor_step(&p->governor, term_of(p), target_of(p), &seen)) {
        log_change(p);
    }
}

/* A step that was not seen to begin and to end counts for nothing. */
static void watch_steps(struct pacing *p)
{
    const struct shared_status *s = trainer(p);
    if (s == NULL) {
        p->step = 0;
        return;
    }
    uint64_t step = atomic_load_explicit(&s->current_step, memory_order_acquire);
    uint64_t at_ns = atomic_load_explicit(&s->step_at_ns, memory_order_acquire);
    if (step == p->step || at_ns == 0 || step != atomic_load_explicit(&s->current_step, memory_order_relaxed)) {
        return;
    }
    if (p->step != 0 && step == p->step + 1 && at_ns > p->step_at_ns) {
        step_ended(p, step, at_ns);
    }
    p->step = step;
    p->step_at_ns = at_ns;
    p->sent = false;
    if (p->lanes[LANE_COPIES].ops > 0) { /* else the network is not watched */
        net_steps_begin(&p->steps, at_ns, atomic_load_explicit(&s->step_ns, memory_order_relaxed));
    }
}

/* ---- the network ------------------------------------------------------------------------------------------------- */

static void watch_network(struct pacing *p, uint64_t now_ns)
{
    uint64_t counter;
    if (!p->nic_tried) {
        p->nic_tried = true;
        nic_counter_open(&p->nic, NIC_DIR, p->needs.config->net_device);
    }
    uint64_t before_ns = p->phase.at_ns;
    if (!nic_counter_read(&p->nic, &counter)) {
        return;
    }
    phase_sample(&p->phase, counter, now_ns);
    if (before_ns != 0 && p->phase.at_ns != before_ns && !phase_hides(&p->phase, now_ns)) {
        net_steps_note(&p->steps, before_ns, now_ns, p->phase.busy);
    }
}

/* ---- lanes ------------------------------------------------------------------------------------------------------- */

/* A version of which nothing moves for version_timeout_ms is aborted. Spread over half of that at most, the copies of
 * even a small one move in time, whichever of them is throttled. A drain that takes longer than some minutes would be
 * taken for one that is stuck. */
static uint64_t longest_ns(const struct pacing *p, enum lane lane)
{
    return NS_PER_MS * (lane == LANE_COPIES ? p->needs.config->version_timeout_ms / UINT64_C(2) : DRAIN_LONGEST_MS);
}

/* 0: nothing throttles this lane. */
static uint64_t interval_ns(const struct pacing *p, enum lane lane, uint64_t now_ns)
{
    const struct pace_state *s = &p->lanes[lane];
    bool paced = target_of(p) > 0 && s->ops > 0 && !rests(p, now_ns) && !p->needs.hurries(p->needs.ctx);
    return paced ? pace_interval(&s->lane, longest_ns(p, lane)) : 0;
}

static bool all_sent(const struct pacing *p)
{
    bool all = true;
    for (int i = 0; i < LANES; i++) {
        all = all && p->lanes[i].lane.left == 0;
    }
    return all;
}

static void on_timer(void *ctx)
{
    struct pacing *p = ctx;
    watch_steps(p);
    if (p->lanes[LANE_COPIES].ops > 0) {
        watch_network(p, clock_ns());
    }
    for (enum lane i = 0; i < LANES; i++) {
        if (p->lanes[i].wait != PACING_GOES) {
            p->lanes[i].wait = PACING_GOES;
            p->needs.resume(p->needs.ctx, i);
        }
    }
    if (p->lanes[LANE_COPIES].ops == 0 && p->lanes[LANE_DRAIN].ops == 0) {
        p->runs = false;
        loop_timer_stop(p->timer);
    }
}

/* What was seen before the pause says nothing of the present. */
static void start_timer(struct pacing *p)
{
    if (p->runs) {
        return;
    }
    p->runs = true;
    p->step = 0;
    phase_restart(&p->phase);
    net_steps_pause(&p->steps);
    watch_steps(p);
    watch_network(p, clock_ns());
    loop_timer_set(p->timer, TICK_MS, true);
}

void pacing_saves(struct pacing *p, uint64_t step)
{
    p->save_step = step;
}

static void limit(struct pacing *p, enum lane lane, uint64_t now_ns)
{
    struct pace_state *s = &p->lanes[lane];
    uint64_t interval = interval_ns(p, lane, now_ns);
    s->rate = pace_rate(&s->lane, interval, p->governor.spread, now_ns);
    if (interval != 0) {
        start_timer(p);
    }
}

void pacing_begin(struct pacing *p, enum lane lane, struct version version, uint64_t bytes)
{
    struct pace_state *s = &p->lanes[lane];
    uint64_t now_ns = clock_ns();
    p->pending_ns = all_sent(p) ? now_ns : p->pending_ns;
    if (lane == LANE_COPIES && s->ops == 0) {
        phase_restart(&p->phase); /* the network was not watched meanwhile */
        net_steps_pause(&p->steps);
    }
    s->ops++;
    pace_begin(&s->lane, version, bytes, now_ns);
    limit(p, lane, now_ns);
}

void pacing_end(struct pacing *p, enum lane lane, uint64_t unsent)
{
    struct pace_state *s = &p->lanes[lane];
    s->ops -= s->ops > 0;
    pace_drop(&s->lane, unsent);
    if (s->ops == 0) {
        pace_end(&s->lane);
    }
    p->pending_ns = all_sent(p) ? NEVER : p->pending_ns;
}

void pacing_more(struct pacing *p, enum lane lane, uint64_t bytes)
{
    uint64_t now_ns = clock_ns();
    p->pending_ns = all_sent(p) ? now_ns : p->pending_ns;
    pace_more(&p->lanes[lane].lane, bytes);
    limit(p, lane, now_ns);
}

void pacing_less(struct pacing *p, enum lane lane, uint64_t bytes)
{
    pace_drop(&p->lanes[lane].lane, bytes);
    p->pending_ns = all_sent(p) ? NEVER : p->pending_ns;
    limit(p, lane, clock_ns());
}

/* Whether the network is likely to be the training's before so many bytes are through. */
static bool disturbs(const struct pacing *p, uint64_t bytes, uint64_t now_ns)
{
    return !phase_fits(&p->phase, bytes, now_ns) || net_steps_busy(&p->steps, now_ns, phase_needs_ns(&p->phase, bytes));
}

static enum pacing_wait waits_for(const struct pacing *p, enum lane lane, uint64_t bytes, uint64_t now_ns)
{
    const struct pace_lane *l = &p->lanes[lane].lane;
    uint64_t interval = interval_ns(p, lane, now_ns);
    if (interval == 0 || pace_must(l, interval, now_ns)) {
        return PACING_GOES;
    }
    if (!pace_may(l, interval, now_ns)) {
        return PACING_RATE;
    }
    if (is_quiet(p)) {
        return PACING_QUIET;
    }
    return lane == LANE_COPIES && disturbs(p, bytes, now_ns) ? PACING_NETWORK : PACING_GOES;
}

bool pacing_take(struct pacing *p, enum lane lane, uint64_t bytes)
{
    struct pace_state *s = &p->lanes[lane];
    uint64_t now_ns = clock_ns(), interval = interval_ns(p, lane, now_ns);
    enum pacing_wait wait = waits_for(p, lane, bytes, now_ns);
    if (wait != PACING_GOES) {
        s->wait = wait;
        start_timer(p);
        return false;
    }
    pace_sent(&s->lane, bytes, interval, p->governor.spread, now_ns);
    p->sent = true;
    p->pending_ns = all_sent(p) ? NEVER : p->pending_ns;
    if (lane == LANE_COPIES) {
        phase_sent(&p->phase, bytes, now_ns);
    }
    return true;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

struct pacing_figures pacing_figures(const struct pacing *p)
{
    struct pacing_figures f = {.target = target_of(p),
                               .spread = p->governor.spread,
                               .gated = p->nic.count > 0,
                               .inflation = p->governor.estimate};
    for (int i = 0; i < LANES; i++) {
        f.rate[i] = p->lanes[i].rate;
        f.left[i] = p->lanes[i].lane.left;
        f.wait[i] = f.left[i] > 0 ? p->lanes[i].wait : PACING_GOES;
    }
    return f;
}

tck_status_t pacing_new(const struct pacing_setup *setup, struct pacing **out, struct error *err)
{
    struct pacing *p = calloc(1, sizeof(*p));
    if (p == NULL || loop_timer_add(setup->loop, on_timer, p, &p->timer) != TCK_OK) {
        free(p);
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    p->needs = *setup;
    p->pending_ns = NEVER;
    governor_init(&p->governor);
    *out = p;
    return TCK_OK;
}

void pacing_free(struct pacing *p)
{
    if (p != NULL) {
        loop_timer_remove(p->timer);
        nic_counter_close(&p->nic);
        free(p);
    }
}
