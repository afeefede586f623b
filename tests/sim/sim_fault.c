/* SPDX-License-Identifier: Apache-2.0
 * What goes wrong. Crashes of machines, damage and machines out of reach when a term forms are counted: never more
 * fault domains than the copies of the newest decided version can bear. All else comes without limit. */
#include "sim.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool fault_tolerable(const struct sim *s, uint32_t domains)
{
    const struct sim_term *term = sim_newest_term(s);
    uint32_t tolerance = term == NULL || term->placement.domains_short > 0 ? 0 : s->copies - 1;
    if (s->anchor.in_memory && s->anchor.tolerance < tolerance) {
        tolerance = s->anchor.tolerance;
    }
    return s->destroyed + domains <= tolerance;
}

void fault_count(struct sim *s, uint32_t domains)
{
    if (domains > 0) {
        s->destroyed += domains;
        s->last_destroyed_ms = s->now;
        s->totals.faults++;
    }
}

void fault_lose_machine(struct sim *s, uint32_t machine)
{
    for (uint32_t shard = 0; shard < s->shards; shard++) {
        s->anchor.promised[shard][machine] = false;
    }
}

/* ---- machines -------------------------------------------------------------------------------------------------- */

static void crash_machine(struct sim *s, uint32_t machine)
{
    struct machine *m = &s->machines[machine];
    sim_log(s, "m%u is lost with its memory", machine);
    agent_stop(s, machine);
    fault_lose_machine(s, machine);
    m->alive = false;
    m->life++;
    m->process++;
    m->stopped_until = 0;
    m->info.agent_id = machine * 1000 + m->life;
    snprintf(m->info.name, sizeof(m->info.name), "m%u.%u", machine, m->life);
    memset(m->segments, 0, sizeof(m->segments));
    memset(m->damaged_ms, 0, sizeof(m->damaged_ms));
    m->terms = (struct term_state){0};
    m->kept = (struct decision){0};
    m->term = NULL;
    recover_form_soon(s);
}

static void crash_domain(struct sim *s, uint32_t machine)
{
    uint32_t domain = machine / s->per_domain;
    for (uint32_t i = 0; i < SIM_MACHINES; i++) {
        if (i / s->per_domain == domain && s->machines[i].alive) {
            crash_machine(s, i);
        }
    }
    fault_count(s, 1);
}

/* Everything loses power: only storage is left. */
static void crash_all(struct sim *s)
{
    sim_log(s, "all machines are lost");
    for (uint32_t i = 0; i < SIM_MACHINES; i++) {
        if (s->machines[i].alive) {
            crash_machine(s, i);
        }
    }
    s->anchor = (struct anchor){.version = s->newest_published};
    s->destroyed = 0;
    s->totals.faults++;
}

/* Every member of the newest term is lost; the memory of machines that the job has left is older. */
static void crash_members(struct sim *s)
{
    const struct sim_term *term = sim_newest_term(s);
    sim_log(s, "all members of the newest term are lost");
    for (uint32_t node = 0; term != NULL && node < s->nodes; node++) {
        uint32_t machine = term->machine_of_node[node];
        if (s->machines[machine].life == term->life_of_node[node] && s->machines[machine].alive) {
            crash_machine(s, machine);
        }
    }
    s->anchor = (struct anchor){.version = s->newest_published};
    s->destroyed = 0;
    s->totals.faults++;
}

static void crash_agent(struct sim *s, uint32_t machine)
{
    if (s->machines[machine].agent_up) {
        sim_log(s, "agent of m%u crashes", machine);
        agent_stop(s, machine);
        s->machines[machine].process++;
        struct task *t = sim_after(s, sim_between(s, 5, 200), TASK_AGENT_START, machine);
        t->from_life = s->machines[machine].life;
        s->totals.faults++;
    }
}

/* Stopped and continued, or suspended: its clock may have gone on without it. */
static void stop_machine(struct sim *s, uint32_t machine)
{
    struct machine *m = &s->machines[machine];
    uint64_t until = s->now + sim_between(s, 20, sim_chance(s, 300) ? 2000 : 200);
    m->stopped_until = until > m->stopped_until ? until : m->stopped_until;
    sim_log(s, "m%u stands still until %" PRIu64, machine, m->stopped_until);
    s->totals.faults++;
}

static void jump_clock(struct sim *s, uint32_t machine)
{
    uint64_t ms = sim_between(s, 1, sim_chance(s, 500) ? 200 : 3600000);
    sim_log(s, "clock of m%u jumps by %" PRIu64 " ms", machine, ms);
    s->machines[machine].clock_ahead += ms;
    s->totals.faults++;
}

/* The user wants the newest commit on storage, now. */
static void ask_for_drain(struct sim *s)
{
    const struct sim_term *term = sim_newest_term(s);
    if (term != NULL) {
        uint32_t machine = term->machine_of_node[0];
        agent_feed(s, machine, (struct event){.type = EVENT_DRAIN_ASKED, .term = term->term});
    }
}

void fault_ask_and_crash(struct sim *s)
{
    uint32_t machine = sim_newest_term(s)->machine_of_node[0];
    ask_for_drain(s);
    storage_owe(s, s->machines[machine].kept.watermark);
    crash_agent(s, machine);
}

/* ---- trainers and memory --------------------------------------------------------------------------------------- */

static void crash_trainer(struct sim *s)
{
    struct sim_term *term = sim_newest_term(s);
    if (term == NULL || !term->training) {
        return;
    }
    uint32_t rank = (uint32_t)sim_random(s, s->ranks);
    uint32_t node = term->world.node_of_rank[rank];
    const struct machine *m = &s->machines[term->machine_of_node[node]];
    if (!term->trainers[rank].alive || m->term != term || m->life != term->life_of_node[node]) {
        return;
    }
    sim_log(s, "trainer %u crashes", rank);
    save_trainer_dies(s, term, rank);
    s->totals.faults++;
    recover_form_soon(s);
}

/* The scrub finds damage and says so. */
static void scrub(struct sim *s, uint32_t machine)
{
    struct machine *m = &s->machines[machine];
    for (uint32_t slot = 0; m->node != NULL && slot < node_slot_total(m->node); slot++) {
        const struct memory_slot *memory = agent_slot(s, machine, slot);
        if (memory->state == SLOT_VERIFIED && !hash128_is(sim_root(memory->value), memory->root)) {
            agent_feed(s, machine, (struct event){.type = EVENT_CORRUPT, .term = m->term->term, .slot = slot});
        }
    }
}

/* The machine with the only copy, NONE32 if there are more or none. */
static uint32_t only_copy(const struct sim *s, uint32_t shard, struct version version, uint32_t *slot_out)
{
    uint32_t found = NONE32;
    for (uint32_t i = 0; i < SIM_MACHINES * s->slots; i++) {
        const struct memory_slot *memory = &s->machines[i / s->slots].segments[shard].slots[i % s->slots];
        if (memory->state == SLOT_VERIFIED && version_is(memory->version, version)) {
            if (found != NONE32) {
                return NONE32;
            }
            found = i / s->slots;
            *slot_out = i % s->slots;
        }
    }
    return found;
}

/* Trainers have read a base that was never decided, and each shard's only copy of it goes bad before there is another.
 */
void fault_damage_base(struct sim *s, const struct sim_term *term)
{
    if (!sim_trait(s, TRAIT_BASE_GOES_BAD, 100) || version_cmp(term->base, s->anchor.version) <= 0 ||
        storage_find(s, term->base) != NULL) {
        return;
    }
    for (uint32_t shard = 0; shard < s->shards; shard++) {
        uint32_t slot, machine = only_copy(s, shard, term->base, &slot);
        if (machine != NONE32) {
            sim_log(s, "m%u: the only copy of shard %u of the base goes bad", machine, shard);
            s->machines[machine].segments[shard].slots[slot].value ^= 1;
            s->machines[machine].damaged_ms[shard] = s->now;
        }
    }
}

static void damage_slot(struct sim *s, uint32_t machine)
{
    struct machine *m = &s->machines[machine];
    uint32_t shard = (uint32_t)sim_random(s, s->shards), i = (uint32_t)sim_random(s, s->slots);
    for (uint32_t k = 0; k < s->slots && sim_chance(s, 700); k++) { /* rather one that counts */
        i = version_is(m->segments[shard].slots[k].version, s->anchor.version) ? k : i;
    }
    struct memory_slot *memory = &m->segments[shard].slots[i];
    if (!m->alive || memory->state != SLOT_VERIFIED || !hash128_is(sim_root(memory->value), memory->root)) {
        return;
    }
    sim_log(s, "m%u: a bit flips in shard %u of %" PRIu64 ".%" PRIu64, machine, shard, memory->version.term,
            memory->version.step);
    memory->value ^= 1;
    m->damaged_ms[shard] = s->now;
    if (version_is(memory->version, s->anchor.version)) {
        s->anchor.promised[shard][machine] = false;
    }
    fault_count(s, 1);
    if (sim_chance(s, 500)) {
        scrub(s, machine);
    }
}

void fault_damage_found(struct sim *s)
{
    uint32_t machine = s->seats[sim_random(s, s->nodes)], shard = (uint32_t)sim_random(s, s->shards);
    bool may = s->machines[machine].node != NULL && s->anchor.promised[shard][machine] && fault_tolerable(s, 1);
    for (uint32_t i = 0; may && i < s->slots; i++) {
        struct memory_slot *memory = &s->machines[machine].segments[shard].slots[i];
        if (version_is(memory->version, s->anchor.version) && memory->state == SLOT_VERIFIED) {
            sim_log(s, "m%u: shard %u of the newest commit goes bad, and that is found", machine, shard);
            memory->value ^= 1;
            s->machines[machine].damaged_ms[shard] = s->now;
            s->anchor.promised[shard][machine] = false;
            fault_count(s, 1);
            scrub(s, machine);
            return;
        }
    }
}

/* ---- network --------------------------------------------------------------------------------------------------- */

/* A cut that outlasts the peers' time-out is noticed by all, some later than others. */
static void report_reach(struct sim *s, enum event_type type, uint32_t cut)
{
    for (uint32_t i = 0; i < SIM_MACHINES; i++) {
        const struct machine *m = &s->machines[i];
        for (uint32_t node = 0; m->node != NULL && node < s->nodes; node++) {
            uint32_t other = m->term->machine_of_node[node];
            bool concerns = cut == NONE32 || (i == cut) != (other == cut);
            bool noticed = type == EVENT_NODE_UP || s->long_cuts || sim_chance(s, 700);
            if (concerns && node != m->self && noticed) {
                struct task *t = sim_after(s, sim_between(s, 20, s->long_cuts ? 600 : 100), TASK_REACH, i);
                t->agent = m->agent;
                t->event = (struct event){.type = type, .term = m->term->term, .node = node};
            }
        }
    }
}

/* An agent says what holds when it speaks (agent/trainers/trainer_control.c): an absence never ends before it begins.
 */
void fault_tell_reach(struct sim *s, const struct task *t)
{
    const struct machine *m = &s->machines[t->machine];
    bool reached = s->machines[m->term->machine_of_node[t->event.node]].group == m->group;
    if (reached == (t->event.type == EVENT_NODE_UP)) {
        agent_feed(s, t->machine, t->event);
    }
}

void fault_cut_off(struct sim *s, uint32_t machine)
{
    if (s->machines[machine].group == 0) {
        sim_log(s, "m%u is cut off", machine);
        s->machines[machine].group = 1;
        report_reach(s, EVENT_NODE_DOWN, machine);
        s->totals.faults++;
        if (sim_chance(s, 600)) {
            recover_form_soon(s);
        }
        if (s->long_cuts) { /* each alone, for about two to ten terms */
            s->machines[machine].group = 1 + machine;
            sim_after(s, sim_between(s, 500, 5000), TASK_HEAL, machine);
            return;
        }
        sim_after(s, sim_between(s, 50, sim_chance(s, 200) ? 2500 : 800), TASK_HEAL, NONE32);
    }
}

void fault_heal(struct sim *s, uint32_t machine)
{
    sim_log(s, machine == NONE32 ? "the network is whole" : "m%u is back", machine);
    for (uint32_t i = 0; i < SIM_MACHINES; i++) {
        if (machine == NONE32 || machine == i) {
            if (s->second_starts && s->machines[i].group != 0) {
                second_return(s, i);
            }
            s->machines[i].group = 0;
        }
    }
    report_reach(s, EVENT_NODE_UP, machine);
}

/* ---- the dice -------------------------------------------------------------------------------------------------- */

static void misc_trouble(struct sim *s, uint32_t machine)
{
    uint64_t kind = sim_random(s, 4);
    if (kind < 2) {
        stop_machine(s, machine);
    } else if (kind == 2) {
        jump_clock(s, machine);
    } else {
        ask_for_drain(s);
    }
}

/* Coordinators are hit more often, while they recover most of all. */
static uint32_t victim(struct sim *s)
{
    const struct sim_term *term = sim_newest_term(s);
    bool recovers = term != NULL && s->machines[term->machine_of_node[0]].recovery != NULL && !term->based;
    return s->seats[sim_chance(s, recovers ? 300 : 50) ? 0 : sim_random(s, s->nodes)];
}

/* Storage alone has what counts, or machines that the job has left have an older version of it. */
static void lose_memory(struct sim *s)
{
    if (s->moved > 0 && s->claimed > s->moved) {
        s->moved = 0;
        crash_members(s);
    } else {
        crash_all(s);
    }
}

static void doubt(struct sim *s)
{
    uint64_t kind = sim_random(s, 10);
    if (kind < 2) {
        sim_log(s, "the job moves");
        recover_move(s);
        return;
    }
    if (kind == 2) {
        storage_tear(s);
    } else {
        listing_doubt(s);
    }
    if (sim_chance(s, 300)) {
        lose_memory(s);
    }
}

void fault_strike(struct sim *s)
{
    if (s->doubts && sim_chance(s, 120)) {
        doubt(s);
        return;
    }
    if (s->tears && sim_chance(s, 150)) {
        storage_tear(s);
        return;
    }
    if (s->second_starts && sim_chance(s, 100)) {
        second_start(s);
        return;
    }
    uint32_t machine = victim(s);
    uint64_t kind = sim_random(s, 100);
    if (kind < 22) {
        crash_agent(s, sim_chance(s, 300) ? s->seats[0] : machine); /* the coordinator's has the most to remember */
    } else if (kind < 40) {
        crash_trainer(s);
    } else if (kind < 55) {
        fault_cut_off(s, machine);
    } else if (kind < 58) {
        storage_power_loss(s);
    } else if (kind < 61) {
        storage_trouble(s);
    } else if (kind < 65) {
        misc_trouble(s, machine);
    } else if (kind < 66) {
        scrub(s, machine);
    } else if (kind < 67) {
        crash_all(s);
    } else if (fault_tolerable(s, 1) && kind < 80) {
        damage_slot(s, sim_chance(s, 800) ? machine : (uint32_t)sim_random(s, SIM_MACHINES));
    } else if (fault_tolerable(s, 1) && s->machines[machine].alive) {
        crash_domain(s, machine);
    }
}
