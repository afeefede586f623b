/* SPDX-License-Identifier: Apache-2.0
 * One schedule, from its shape to the rest it must come to. */
#include "sim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRESS_MS        8000 /* after everything is healed something must be committed and published within this */
#define OVERLOADED_COMMITS 4    /* so many, if all the time more is saved than can be copied */
#define LAST_TRIES         3    /* to save the training's last step, as clients make them */
#define SETTLE_MS          1500 /* when no trainer is left, all is at rest after this */

/* ---- one schedule ---------------------------------------------------------------------------------------------- */

static void choose_shape(struct sim *s)
{
    s->nodes = (uint32_t)sim_between(s, 3, SIM_NODES);
    s->ranks = (uint32_t)sim_between(s, s->nodes, SIM_RANKS);
    s->slots = sim_chance(s, 800) ? 3 : 2;
    s->per_domain = s->nodes >= 5 && sim_chance(s, 300) ? 2 : 1;
    s->copies = s->per_domain == 1 && sim_chance(s, 200) ? 3 : 2;
    s->mem_every = (uint32_t)sim_between(s, 1, 3);
    s->storage_every = s->mem_every * (uint32_t)sim_between(s, 1, 6);
    s->loss = sim_chance(s, 300) ? 0 : (uint32_t)sim_random(s, 100);
    s->duplicate = (uint32_t)sim_random(s, 60);
    s->fault_every = (uint32_t)sim_between(s, 30, sim_chance(s, 500) ? 300 : 1000);
    s->notice = (uint32_t)sim_between(s, 10, 300);
    s->settles = sim_chance(s, 300);
    bool twins = sim_chance(s, 400);
    s->overloaded = sim_trait(s, TRAIT_OVERLOADED, 100);
    s->mem_every = s->overloaded ? 1 : s->mem_every;
    s->twins_differ = sim_trait(s, TRAIT_TWINS_DIFFER, 300);
    s->spreads = sim_trait(s, TRAIT_SPREADS, 500);
    s->repairs = sim_trait(s, TRAIT_REPAIRS, 200);
    s->freezes = sim_trait(s, TRAIT_FREEZES, 250);
    s->tears = sim_trait(s, TRAIT_TEARS, 150);
    s->doubts = sim_trait(s, TRAIT_DOUBTS, 250);
    s->second_starts = sim_trait(s, TRAIT_SECOND_STARTS, 200);
    s->notes = sim_trait(s, TRAIT_NOTES, 500);
    s->long_cuts = sim_trait(s, TRAIT_LONG_CUTS, 50);
    s->fault_every = s->long_cuts && s->fault_every < 150 ? 150 : s->fault_every;
    for (uint32_t r = 0; r < s->ranks; r++) {
        s->rank_shards[r][0] = s->shards++;
        s->rank_shard_count[r] = 1;
    }
    for (uint32_t r = 0; twins && r + 1 < s->ranks && s->shards < SIM_SHARDS; r += 2) {
        s->rank_shards[r][1] = s->rank_shards[r + 1][1] = s->shards++; /* a data-parallel pair */
        s->rank_shard_count[r] = s->rank_shard_count[r + 1] = 2;
    }
}

static void set_up(struct sim *s, uint64_t seed, bool verbose)
{
    memset(s, 0, offsetof(struct sim, tasks)); /* the queue's memory needs no cleaning, and is large */
    s->seed = s->random = seed;
    s->verbose = verbose;
    sim_queue_clear(s);
    s->totals = (struct totals){.schedules = 1};
    choose_shape(s);
    for (uint32_t i = 0; i < SIM_MACHINES; i++) {
        struct machine *m = &s->machines[i];
        m->alive = m->agent_up = i < s->nodes;
        m->info.agent_id = i * 1000;
        snprintf(m->info.name, sizeof(m->info.name), "m%u.0", i);
        snprintf(m->info.domain, sizeof(m->info.domain), "d%u", i / s->per_domain);
        snprintf(m->info.address, sizeof(m->info.address), "10.0.0.%u:1", i);
        sim_after(s, sim_random(s, HEARTBEAT_MS), TASK_TICK, i);
    }
    for (uint32_t i = 0; i < s->nodes; i++) {
        s->seats[i] = i;
    }
    sim_log(s, "%u nodes, %u ranks, %u shards, %u slots, %u copies, %u machines per domain", s->nodes, s->ranks,
            s->shards, s->slots, s->copies, s->per_domain);
    recover_form_soon(s);
    sim_after(s, s->fault_every, TASK_FAULT, NONE32);
}

static void tear_down(struct sim *s)
{
    for (uint32_t i = 0; i < SIM_MACHINES; i++) {
        recovery_free(s->machines[i].recovery);
        free(s->machines[i].node_memory);
        free(s->machines[i].coordinator_memory);
    }
    for (uint64_t t = 1; t <= s->claimed; t++) {
        sim_term_free(s->terms[t]);
    }
}

static void start_agent(struct sim *s, const struct task *t)
{
    const struct machine *m = &s->machines[t->machine];
    if (m->alive && !m->agent_up && m->life == t->from_life) {
        agent_start(s, t->machine);
    }
}

static void next_fault(struct sim *s)
{
    if (!s->calm) {
        fault_strike(s);
        sim_after(s, sim_between(s, 1, 2 * s->fault_every), TASK_FAULT, NONE32);
    }
}

static void tick(struct sim *s, uint32_t machine)
{
    if (s->machines[machine].agent_up && s->machines[machine].stopped_until <= s->now) {
        agent_tick(s, machine);
    }
    sim_after(s, HEARTBEAT_MS, TASK_TICK, machine);
}

static void run_agent_task(struct sim *s, const struct task *t)
{
    static void (*const handlers[])(struct sim * s, const struct task *t) = {
        [TASK_DIGEST] = save_digest,
        [TASK_TRANSFER] = save_transfer,
        [TASK_COPY_TIMEOUT] = save_copy_timeout,
        [TASK_DRAIN] = storage_drained,
        [TASK_PUBLISH] = storage_publish_step,
        [TASK_SWEEP] = storage_sweep,
        [TASK_INVENTORY] = recover_inventory,
        [TASK_STORED] = recover_stored,
        [TASK_FETCH] = recover_fetch,
        [TASK_PULLED] = recover_pulled,
        [TASK_FETCHED] = recover_fetched,
        [TASK_UNPIN] = agent_unpin,
        [TASK_MESSAGE] = agent_message,
        [TASK_REACH] = fault_tell_reach,
        [TASK_STEP] = save_step,
        [TASK_BEGIN] = save_begin_rank,
        [TASK_LAST] = save_begin_last,
        [TASK_GRANTED] = save_copy,
        [TASK_COPIED] = save_copied,
        [TASK_THAW] = save_thaw,
        [TASK_RETURN] = save_return,
        [TASK_JOIN] = recover_join,
        [TASK_AGENT_START] = start_agent,
        [TASK_SECOND_ASK] = second_ask,
    };
    handlers[t->type](s, t);
}

static void run_task(struct sim *s, const struct task *t)
{
    if (t->agent != NONE32 && s->machines[t->machine].agent != t->agent) {
        return; /* what a former agent had begun */
    }
    bool stopped = t->machine != NONE32 && s->machines[t->machine].stopped_until > s->now;
    if (stopped && t->type != TASK_TICK) {
        sim_again(s, t, s->machines[t->machine].stopped_until - s->now);
        return;
    }
    if (t->type == TASK_LOCAL) {
        agent_feed(s, t->machine, t->event);
    } else if (t->type == TASK_TICK) {
        tick(s, t->machine);
    } else if (t->type == TASK_FORM) {
        recover_form(s);
    } else if (t->type == TASK_FAULT) {
        next_fault(s);
    } else if (t->type == TASK_SECOND_JUDGE) {
        second_judge(s);
    } else if (t->type == TASK_CUT && !s->calm) {
        fault_cut_off(s, t->machine);
    } else if (t->type == TASK_HEAL) {
        fault_heal(s, t->machine);
    } else if (t->type != TASK_CUT) {
        run_agent_task(s, t);
    }
}

/* No more faults: what is down comes back, and the world must get somewhere. */
static void calm_down(struct sim *s)
{
    s->calm = true;
    s->calm_at = s->now;
    s->loss = s->duplicate = 0;
    fault_heal(s, NONE32);
    sim_log(s, "calm");
    if (sim_chance(s, 500) || !recover_stands(s)) {
        recover_form_soon(s); /* else the term must go on by itself from whatever was lost on the way */
    }
}

/* Whether this version was begun when all was healed already. */
static bool is_of_calm(const struct sim *s, struct version v)
{
    const struct sim_term *term = v.term == s->claimed ? s->terms[v.term] : NULL;
    return term != NULL && term->first_begin[v.step] > s->calm_at;
}

static bool progressed(const struct sim *s)
{
    bool committed = s->anchor.in_memory && is_of_calm(s, s->anchor.version) &&
                     s->calm_commits >= (s->overloaded ? OVERLOADED_COMMITS : 1);
    return committed && (!s->settles || is_of_calm(s, s->newest_published));
}

/* A drain is asked for while another one runs, as long as one is seen to. */
static bool drain_may_be_asked(const struct sim *s)
{
    const struct sim_term *term = sim_newest_term(s);
    const struct machine *m = &s->machines[term->machine_of_node[0]];
    const struct decision *d = &m->kept;
    bool waits = !version_none(d->drain) && version_cmp(d->watermark, d->drain) > 0;
    return !sim_trait(s, TRAIT_DRAIN_WAITS, 500) || s->now > s->calm_at + PROGRESS_MS ||
           (waits && m->coordinator != NULL);
}

/* The training's last step, if there is one, is published sooner or later. */
static bool awaits_last_step(struct sim *s)
{
    if (version_none(s->last_step)) {
        return false;
    }
    if (version_is(s->newest_published, s->last_step)) {
        s->last_step = VERSION_NONE;
        s->quiet_at = s->now;
        return false;
    }
    bool aborted = s->last_refused || s->terms[s->last_step.term]->fates[s->last_step.step] == FATE_OVER;
    if (s->now > s->quiet_at + PROGRESS_MS || (aborted && s->last_tries == LAST_TRIES)) {
        sim_fail(s, "last step: " V_FMT " is not published", V_ARG(s->last_step));
    } else if (aborted) {
        save_last_step(s);
    }
    return true;
}

/* True when the schedule has shown all that it is to show. */
static bool is_over(struct sim *s)
{
    if (s->quiet_at > 0) {
        if (awaits_last_step(s) || s->now < s->quiet_at + SETTLE_MS) {
            return false;
        }
        check_settled(s);
        return true;
    }
    if (!progressed(s)) {
        if (s->now > s->calm_at + PROGRESS_MS) {
            sim_fail(s, "progress: all is healed and nothing is %s",
                     is_of_calm(s, s->anchor.version) ? "published" : "committed");
        }
        return false;
    }
    if (!s->settles || !drain_may_be_asked(s)) {
        return !s->settles;
    }
    s->quiet_at = s->now;
    if (sim_trait(s, TRAIT_DRAIN_WAITS, 500)) {
        fault_ask_and_crash(s);
    }
    if (s->repairs) {
        fault_damage_found(s);
    }
    if (sim_trait(s, TRAIT_LAST_STEP, 500)) {
        save_last_step(s);
    }
    return false;
}

static void run_schedule(struct sim *s)
{
    uint64_t shortest = s->long_cuts ? 3000 : s->doubts ? 1000 : 300;
    uint64_t calm_at = sim_between(s, shortest, s->long_cuts ? 8000 : s->doubts ? 4000 : 2500);
    struct task t;
    while (!s->failed && sim_next(s, &t)) {
        if (!s->calm && s->now >= calm_at) {
            calm_down(s);
        }
        run_task(s, &t);
        s->totals.events++;
        if (s->touched) {
            s->touched = false;
            check_memory(s);
        }
        if (s->calm && is_over(s)) {
            break;
        }
    }
    check_storage(s);
}

bool sim_run(struct sim *s, uint64_t seed, bool verbose)
{
    set_up(s, seed, verbose);
    run_schedule(s);
    tear_down(s);
    return !s->failed;
}
