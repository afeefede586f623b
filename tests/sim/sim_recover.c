/* SPDX-License-Identifier: Apache-2.0
 * Terms: the launcher puts a world together, its agents join one by one, the real recovery machine restores it. */
#include "sim.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASK_AGAIN_MS    100 /* fetches without an outcome */
#define ASKED_AGAIN_MAX 40
#define STORAGE_WAIT_MS 200 /* storage is asked again so long for what it could not give */
#define STORAGE_HANG_MS 600 /* and its answer is waited for so long */

struct sim_term *sim_newest_term(const struct sim *s)
{
    return s->claimed > 0 ? s->terms[s->claimed] : NULL;
}

void sim_term_free(struct sim_term *term)
{
    if (term != NULL) {
        placement_free(&term->placement);
        world_free(&term->world);
        free(term);
    }
}

/* ---- forming --------------------------------------------------------------------------------------------------- */

void recover_form_soon(struct sim *s)
{
    if (!s->form_pending) {
        s->form_pending = true;
        sim_after(s, sim_between(s, 20, 150), TASK_FORM, NONE32);
    }
}

bool recover_stands(const struct sim *s)
{
    const struct sim_term *term = sim_newest_term(s);
    bool stands = term != NULL && term->training && !s->form_pending;
    for (uint32_t node = 0; stands && node < s->nodes; node++) {
        const struct machine *m = &s->machines[term->machine_of_node[node]];
        stands = m->life == term->life_of_node[node] && m->terms.adopted == term->term;
    }
    for (uint32_t r = 0; stands && r < s->ranks; r++) {
        stands = term->trainers[r].alive;
    }
    return stands;
}

static bool is_seated(const struct sim *s, uint32_t machine)
{
    for (uint32_t i = 0; i < s->nodes; i++) {
        if (s->seats[i] == machine) {
            return true;
        }
    }
    return false;
}

/* A machine for an empty seat: one that is idle, else a new one in a dead one's place. */
static uint32_t spare_machine(struct sim *s)
{
    for (uint32_t i = 0; i < SIM_MACHINES; i++) {
        const struct machine *m = &s->machines[i];
        if (m->alive && m->agent_up && m->group == 0 && !is_seated(s, i)) {
            return i;
        }
    }
    for (uint32_t i = 0; i < SIM_MACHINES; i++) {
        struct machine *m = &s->machines[i];
        if (!m->alive && !is_seated(s, i)) {
            m->alive = m->agent_up = true;
            m->group = 0;
            return i;
        }
    }
    return NONE32;
}

/* Whether giving it up loses anything: of the newest term, or of what was decided. */
static bool is_needed(const struct sim *s, uint32_t machine)
{
    bool needed = is_seated(s, machine);
    for (uint32_t shard = 0; shard < s->shards; shard++) {
        needed |= s->anchor.promised[shard][machine];
    }
    return needed;
}

/* A machine that stands still is waited for while it is a member. If the job leaves it, it counts as lost when the wait
 * is over, and that loss is not among those that the schedule can bear. */
static bool a_needed_one_stands_still(const struct sim *s)
{
    for (uint32_t i = 0; i < SIM_MACHINES; i++) {
        if (s->machines[i].stopped_until > s->now && is_needed(s, i)) {
            return true;
        }
    }
    return false;
}

void recover_move(struct sim *s)
{
    if (a_needed_one_stands_still(s)) {
        return;
    }
    for (uint32_t i = 0; i < s->nodes; i++) {
        uint32_t spare = spare_machine(s);
        s->seats[i] = spare == NONE32 ? s->seats[i] : spare;
    }
    s->moved = s->claimed;
    recover_form_soon(s);
}

static bool usable(const struct machine *m)
{
    return m->alive && m->agent_up && m->group == 0;
}

/* Machines out of reach are given up only if the world can bear it; one whose agent restarts is waited for. */
static bool may_form(struct sim *s)
{
    uint32_t lost = 0;
    for (uint32_t i = 0; i < SIM_MACHINES; i++) {
        const struct machine *m = &s->machines[i];
        if (m->alive && !m->agent_up) {
            return false;
        }
        lost += m->alive && m->group != 0 && is_needed(s, i);
    }
    if (lost > 0 && !fault_tolerable(s, lost)) {
        return false;
    }
    fault_count(s, lost);
    for (uint32_t i = 0; i < SIM_MACHINES; i++) {
        if (s->machines[i].alive && s->machines[i].group != 0) {
            fault_lose_machine(s, i);
        }
    }
    return true;
}

static bool take_seats(struct sim *s)
{
    for (uint32_t i = 0; i < s->nodes; i++) {
        if (!usable(&s->machines[s->seats[i]])) {
            uint32_t spare = spare_machine(s);
            if (spare == NONE32) {
                return false;
            }
            s->seats[i] = spare;
        }
    }
    if (sim_chance(s, 200)) { /* ranks may move between machines */
        uint32_t a = (uint32_t)sim_random(s, s->nodes), b = (uint32_t)sim_random(s, s->nodes), swap = s->seats[a];
        s->seats[a] = s->seats[b];
        s->seats[b] = swap;
    }
    return true;
}

static bool build_world(struct sim *s, struct sim_term *term)
{
    struct rank_hello hellos[SIM_RANKS];
    struct shard_info infos[2 * SIM_RANKS];
    uint32_t counts[SIM_RANKS], total = 0;
    for (uint32_t r = 0; r < s->ranks; r++) {
        hellos[r] = (struct rank_hello){.node = s->machines[s->seats[r * s->nodes / s->ranks]].info};
        counts[r] = s->rank_shard_count[r];
        for (uint32_t i = 0; i < counts[r]; i++) {
            infos[total++] = (struct shard_info){.id = {s->rank_shards[r][i], 1}, .image_bytes = 4096};
        }
    }
    struct error err = {0};
    if (world_build(term->term, hellos, s->ranks, &term->world, &err) != TCK_OK ||
        world_add_shards(&term->world, infos, counts, &err) != TCK_OK ||
        placement_build(&term->world, s->copies, &term->placement, &err) != TCK_OK) {
        sim_fail(s, "no world: %s", err.text);
        return false;
    }
    if (sim_trait(s, TRAIT_NAMESAKES, 300)) {
        check_namesakes(s, hellos, &term->world);
    }
    return true;
}

static void number_things(struct sim *s, struct sim_term *term)
{
    for (uint32_t i = 0; i < s->nodes; i++) {
        term->machine_of_node[i] = s->seats[i];
        term->life_of_node[i] = s->machines[s->seats[i]].life;
    }
    for (uint32_t w = 0; w < term->world.shard_count; w++) {
        term->ids[w] = term->world.shards[w].id;
        term->shard_of_world[w] = (uint32_t)term->world.shards[w].id.hi;
        term->world_of_shard[term->shard_of_world[w]] = w;
        term->drains[term->placement.shards[w].drainer] = true;
    }
}

static void end_older_trainers(struct sim *s)
{
    for (uint64_t t = 1; t <= s->claimed; t++) {
        for (uint32_t r = 0; r < s->ranks; r++) {
            uint32_t machine = s->terms[t]->machine_of_node[s->terms[t]->world.node_of_rank[r]];
            if (s->machines[machine].group == 0) {
                s->terms[t]->trainers[r].alive = false;
            }
        }
    }
}

void recover_form(struct sim *s)
{
    s->form_pending = false;
    if (s->claimed + 1 >= SIM_TERMS) {
        return;
    }
    if (!may_form(s) || !take_seats(s)) {
        recover_form_soon(s);
        return;
    }
    struct sim_term *term = calloc(1, sizeof(*term));
    term->term = s->claimed + 1;
    if (!build_world(s, term)) {
        sim_term_free(term);
        return;
    }
    number_things(s, term);
    check_placement(s, term);
    end_older_trainers(s);
    s->terms[++s->claimed] = term;
    listing_take(s, term, &term->claimed);
    s->totals.recoveries++;
    sim_log(s, "term %" PRIu64 " is claimed; coordinator m%u", term->term, s->seats[0]);
    for (uint32_t i = 0; i < s->nodes; i++) {
        struct task *t = sim_after(s, sim_between(s, 1, 40), TASK_JOIN, s->seats[i]);
        t->term = term->term;
        t->slot = i;
        t->from_life = s->machines[s->seats[i]].life;
    }
}

/* Trainers of a term that is over may come late; an agent that adopted a newer one must refuse them. */
static void check_late_join(struct sim *s, uint32_t machine, uint64_t term)
{
    struct term_state terms = s->machines[machine].terms;
    if (terms.adopted > term && term_join(&terms, term)) {
        sim_fail(s, "fencing: m%u joins term %" PRIu64 ", which is over", machine, term);
    }
}

void recover_join(struct sim *s, const struct task *t)
{
    struct machine *m = &s->machines[t->machine];
    struct sim_term *term = s->terms[t->term];
    if (m->life == t->from_life && m->agent_up && t->term != s->claimed) {
        check_late_join(s, t->machine, t->term);
    }
    if (t->term != s->claimed || m->life != t->from_life) {
        return;
    }
    if (!m->agent_up || m->group != 0) {
        struct task *again = sim_after(s, 30, TASK_JOIN, t->machine);
        again->term = t->term;
        again->slot = t->slot;
        again->from_life = t->from_life;
        return;
    }
    agent_stop(s, t->machine);
    for (uint32_t i = 0; i < s->shards * s->slots; i++) { /* the trainers of the old term are gone */
        save_orphan_writer(s, t->machine, i / s->slots, i % s->slots);
    }
    m->agent_up = true;
    m->self = t->slot;
    if (!term_join(&m->terms, t->term)) {
        sim_fail(s, "m%u cannot join the newest term", t->machine);
        return;
    }
    agent_join(s, t->machine, term);
    if (m->coordinator != NULL) {
        storage_sweep_soon(s, t->machine);
    }
    if (++term->joined == s->nodes) {
        term->dawdles = !s->calm && sim_chance(s, 60);
        if (term->dawdles) {
            sim_after(s, sim_between(s, 20, 400), TASK_CUT, term->machine_of_node[0]);
        }
        recover_begin(s, term->machine_of_node[0]);
    }
}

/* ---- recovery -------------------------------------------------------------------------------------------------- */

static void carry_out(struct sim *s, uint32_t machine, const struct recovery_action *action);

static uint64_t recovery_now(struct sim *s, uint32_t machine)
{
    return recovery_clock_at(&s->machines[machine].recovery_clock, sim_clock(s, machine));
}

/* Carries out what the machine asks for, too. */
static void step_recovery(struct sim *s, uint32_t machine, struct recovery_event event)
{
    struct machine *m = &s->machines[machine];
    struct recovery_actions actions;
    if (recovery_actions_init(&actions) != TCK_OK) {
        sim_fail(s, "no memory");
        return;
    }
    event.now_ms = recovery_now(s, machine);
    recovery_step(m->recovery, &event, &actions);
    for (uint32_t i = 0; i < actions.count; i++) {
        carry_out(s, machine, &actions.items[i]);
    }
    recovery_actions_free(&actions);
}

void recover_begin(struct sim *s, uint32_t machine)
{
    struct machine *m = &s->machines[machine];
    if (m->coordinator == NULL || m->term->joined < s->nodes || m->kept.based || m->kept.base_lost) {
        return; /* it begins when the last one joins, or when this agent is back */
    }
    bool fresh = m->kept.readable && version_none(m->kept.base);
    if (fresh || m->kept.watermark.term == m->term->term) { /* this term has something newer, or began afresh */
        agent_feed(s, machine, (struct event){.type = EVENT_BASED, .term = m->term->term});
        return;
    }
    struct recovery_setup setup = {.world = &m->term->world,
                                   .placement = &m->term->placement,
                                   .wait_ms = s->doubts ? 300 : 1000,
                                   .max_tries = 5,
                                   .first_owner_suffices = s->spreads,
                                   .storage_wait_ms = s->doubts ? STORAGE_WAIT_MS : 0,
                                   .storage_hang_ms = s->doubts ? STORAGE_HANG_MS : 0};
    recovery_free(m->recovery);
    m->recovery = NULL;
    if (recovery_new(&setup, &m->recovery) != TCK_OK) {
        sim_fail(s, "no memory");
        return;
    }
    if (m->kept.readable) {
        step_recovery(s, machine, (struct recovery_event){.type = RECOVERY_EVENT_RESUME, .version = m->kept.base});
    } else {
        step_recovery(s, machine, (struct recovery_event){.type = RECOVERY_EVENT_START, .step = TCK_NEWEST});
    }
}

static struct task *recovery_task(struct sim *s, uint32_t coordinator, uint64_t after, enum task_type type)
{
    struct task *t = sim_after(s, after, type, coordinator);
    t->agent = s->machines[coordinator].agent;
    t->term = s->machines[coordinator].term->term;
    return t;
}

static void ask_all(struct sim *s, uint32_t coordinator)
{
    struct sim_term *term = s->terms[s->machines[coordinator].term->term];
    memset(term->answered, 0, sizeof(term->answered));
    term->asked++;
    for (uint32_t i = 0; i < SIM_MACHINES; i++) {
        if (s->machines[i].alive) {
            struct task *t = recovery_task(s, coordinator, sim_between(s, 2, 40), TASK_INVENTORY);
            t->from = i;
            t->number = term->asked;
        }
    }
}

/* Looks at the recovery after each event: the moment it has a plan, older coordinators no longer bind anybody. */
static void note_plan(struct sim *s, uint32_t machine)
{
    struct machine *m = &s->machines[machine];
    struct sim_term *term = s->terms[m->term->term];
    enum recovery_phase phase = m->recovery == NULL ? RECOVERY_IDLE : recovery_phase(m->recovery);
    const struct plan *plan = m->recovery == NULL ? NULL : recovery_plan(m->recovery);
    if (phase == RECOVERY_IDLE || phase == RECOVERY_ASKING || plan == NULL) {
        return;
    }
    check_choice(s, term, m->recovery);
    if (term->planned || term->training || (version_none(plan->version) && !plan->nothing_saved)) {
        return;
    }
    sim_log(s, "term %" PRIu64 " plans: %s", term->term, plan->reason);
    term->planned = true;
    term->planned_ms = s->now;
    term->plan = plan->version;
    check_plan(s, term, plan->version);
}

/* All that is whole; of the asking term itself only what is committed, since the rest may be freed at any moment. */
static void read_headers(struct sim *s, const struct machine *m, const struct sim_term *term, struct inventory *out)
{
    out->node = m->info;
    out->holdings = calloc((size_t)SIM_SHARDS * SIM_SLOTS, sizeof(*out->holdings));
    for (uint32_t i = 0; i < s->shards * s->slots; i++) {
        const struct memory_slot *memory = &m->segments[i / s->slots].slots[i % s->slots];
        if (memory->state != SLOT_VERIFIED) {
            continue;
        }
        if (memory->committed && version_cmp(memory->version, out->watermark) > 0) {
            out->watermark = memory->version;
        }
        if (memory->version.term < term->term || memory->committed) {
            out->holdings[out->count++] = (struct holding){.shard = {i / s->slots, 1},
                                                           .layout = term->world.layout,
                                                           .version = memory->version,
                                                           .root = memory->root,
                                                           .image_bytes = 4096};
        }
    }
    inventory_sort(out);
}

/* What its sessions tell the coordinator of its members: the end of an agent at once, silence only after a while. */
static void report_reach(struct sim *s, uint32_t coordinator, bool at_once)
{
    struct machine *m = &s->machines[coordinator];
    for (uint32_t node = 0; node < s->nodes; node++) {
        uint32_t at = m->term->machine_of_node[node];
        if (s->machines[at].life == m->term->life_of_node[node] && sim_reach(s, coordinator, at)) {
            step_recovery(s, coordinator, (struct recovery_event){.type = RECOVERY_EVENT_NODE_UP, .node = node});
        } else if (m->term->dawdles && s->machines[at].agent_up && m->group != 0) {
            continue;
        } else if (at_once || s->calm || !s->machines[at].agent_up || sim_chance(s, s->notice)) {
            step_recovery(s, coordinator, (struct recovery_event){.type = RECOVERY_EVENT_NODE_DOWN, .node = node});
        }
    }
}

void recover_tick(struct sim *s, uint32_t machine)
{
    struct machine *m = &s->machines[machine];
    if (!m->kept.based && m->kept.watermark.term == m->term->term) { /* its own commit needs no older one under it */
        agent_feed(s, machine, (struct event){.type = EVENT_BASED, .term = m->term->term});
        recovery_free(m->recovery);
        m->recovery = NULL;
        return;
    }
    if (m->recovery == NULL) {
        return;
    }
    report_reach(s, machine, false);
    step_recovery(s, machine, (struct recovery_event){.type = RECOVERY_EVENT_TICK});
    note_plan(s, machine);
}

static void lose_base(struct sim *s, uint32_t machine, struct version base)
{
    sim_log(s, "the base of term %" PRIu64 ", %" PRIu64 ".%" PRIu64 ", is lost", s->machines[machine].term->term,
            base.term, base.step);
    struct task *t = recovery_task(s, machine, 1, TASK_LOCAL);
    t->event = (struct event){.type = EVENT_BASE_LOST, .term = t->term, .version = base};
}

void recover_refused(struct sim *s, uint32_t machine, const struct event *refused)
{
    const struct machine *m = &s->machines[machine];
    bool lacks_slot = refused->refusal == REFUSAL_NO_SLOT || refused->refusal == REFUSAL_NOT_YET;
    if (refused->type != EVENT_REFUSED || !lacks_slot) {
        return;
    }
    switch (recovery_free_slots(m->recovery, &m->kept)) {
    case RELIEF_NONE:
        break;
    case RELIEF_PRESS:
        step_recovery(s, machine, (struct recovery_event){.type = RECOVERY_EVENT_SLOTS_NEEDED});
        break;
    case RELIEF_BASE_LOST:
        lose_base(s, machine, m->kept.base);
        break;
    case RELIEF_BEGIN_AGAIN:
        recover_begin(s, machine);
        break;
    case RELIEF_NO_BASE: {
        struct task *t = recovery_task(s, machine, 1, TASK_LOCAL);
        t->event = (struct event){.type = EVENT_BASED, .term = t->term};
        break;
    }
    }
}

/* The node that it still is, NONE32 if none. */
static uint32_t member_at(const struct sim *s, const struct sim_term *term, uint32_t machine)
{
    for (uint32_t node = 0; node < term->world.node_count; node++) {
        if (term->machine_of_node[node] == machine && term->life_of_node[node] == s->machines[machine].life) {
            return node;
        }
    }
    return NONE32;
}

/* All members, and nobody else, as in the agent: whoever is silent has not answered, however long it is waited for. */
static void note_answer(struct sim *s, const struct task *t)
{
    struct sim_term *term = s->terms[t->term];
    uint32_t node = member_at(s, term, t->from);
    if (node == NONE32 || t->number != term->asked) {
        return;
    }
    term->answered[node] = true;
    for (uint32_t i = 0; i < term->world.node_count; i++) {
        if (!term->answered[i]) {
            return;
        }
    }
    step_recovery(s, t->machine, (struct recovery_event){.type = RECOVERY_EVENT_ASKED_ALL});
}

/* Whom this machine knows of: the members of the terms in which it was one itself. */
static void tell_known(struct sim *s, uint32_t machine, uint32_t coordinator)
{
    for (uint64_t t = 1; t < s->claimed; t++) {
        const struct sim_term *term = s->terms[t];
        for (uint32_t node = 0; node < s->nodes && member_at(s, term, machine) != NONE32; node++) {
            struct known_node known = {.node = term->world.nodes[node], .term = t};
            step_recovery(s, coordinator, (struct recovery_event){.type = RECOVERY_EVENT_KNOWN, .known = &known});
        }
    }
}

void recover_inventory(struct sim *s, const struct task *t)
{
    struct machine *coordinator = &s->machines[t->machine], *m = &s->machines[t->from];
    struct sim_term *term = s->terms[t->term];
    if (coordinator->recovery == NULL) {
        return;
    }
    bool silent = m->stopped_until > s->now || m->group != coordinator->group;
    bool member = member_at(s, term, t->from) != NONE32 && t->number == term->asked; /* asked until it answers */
    if (m->alive && (!m->agent_up || silent) && (member || (!m->agent_up && t->phase < 10))) {
        struct task *again = recovery_task(s, t->machine, 30, TASK_INVENTORY);
        again->from = t->from;
        again->phase = t->phase + 1;
        again->number = t->number;
        return;
    }
    enum term_verdict verdict = term_judge(&m->terms, t->term);
    if (m->alive && sim_reach(s, t->machine, t->from)) {
        if (verdict == TERM_STALE) {
            agent_tell_stale(s, t->from, t->machine);
            return;
        }
        if (verdict == TERM_NEWER) { /* alive, but not of this world: it gives its copies */
            agent_stop(s, t->from);
            m->agent_up = true;
            term_adopt(&m->terms, t->term);
        }
        sim_log(s, "m%u gives its inventory to term %" PRIu64, t->from, t->term);
        if (m->terms.adopted > t->term) { /* what it frees from now on, the older term would still count on */
            sim_fail(s, "fencing: m%u gives its inventory to term %" PRIu64 ", which is over", t->from, t->term);
        }
        struct inventory inventory = {0};
        read_headers(s, m, term, &inventory);
        tell_known(s, t->from, t->machine);
        step_recovery(s, t->machine,
                      (struct recovery_event){.type = RECOVERY_EVENT_INVENTORY, .inventory = &inventory});
        note_answer(s, t);
    } else {
        report_reach(s, t->machine, false);
    }
    note_plan(s, t->machine);
}

void recover_stored(struct sim *s, const struct task *t)
{
    struct machine *m = &s->machines[t->machine];
    if (m->recovery == NULL || recovery_phase(m->recovery) != RECOVERY_ASKING) {
        return;
    }
    struct storage_view view = listing_answer(s, s->terms[t->term]);
    step_recovery(s, t->machine, (struct recovery_event){.type = RECOVERY_EVENT_STORED, .storage = &view});
    note_plan(s, t->machine);
}

static uint32_t machine_by_id(const struct sim *s, const struct node_info *info)
{
    for (uint32_t i = 0; i < SIM_MACHINES; i++) {
        if (s->machines[i].info.agent_id == info->agent_id) {
            return i;
        }
    }
    return NONE32;
}

static struct version floor_of(const struct machine *coordinator)
{
    const struct plan_input *input = recovery_input(coordinator->recovery);
    struct version floor = VERSION_NONE;
    for (uint32_t i = 0; i < input->inventory_count; i++) {
        if (version_cmp(input->inventories[i].watermark, floor) > 0) {
            floor = input->inventories[i].watermark;
        }
    }
    return floor;
}

static void request_fetch(struct sim *s, uint32_t machine, const struct recovery_action *a)
{
    const struct machine *m = &s->machines[machine];
    struct task *t = recovery_task(s, machine, sim_between(s, 1, 10), TASK_FETCH);
    t->rank = a->node;
    t->shard = a->shard;
    t->version = a->version;
    t->source = a->source;
    t->from = a->source == SOURCE_STORAGE ? NONE32 : machine_by_id(s, &a->from);
    t->from_life = t->from == NONE32 ? 0 : s->machines[t->from].life;
    t->event.floor = floor_of(m);
    t->event.fallback = recovery_plan(m->recovery)->fallback;
}

/* The launcher has ended the trainers of a superseded term wherever it could; what it could not reach goes on. */
static void start_training(struct sim *s, struct sim_term *term, struct version base)
{
    if (term->training) {
        return;
    }
    term->training = true;
    term->base = base;
    term->step = base.step;
    listing_note_restored(s, term);
    for (uint32_t r = 0; r < s->ranks; r++) {
        const struct machine *m = &s->machines[term->machine_of_node[term->world.node_of_rank[r]]];
        term->trainers[r].alive = term->term == s->claimed || m->group != 0;
        term->trainers[r].agent = m->agent;
    }
    sim_after(s, 10, TASK_STEP, NONE32)->term = term->term;
}

/* Trainers read what they restore; the slots are pinned meanwhile. */
static void let_trainers_read(struct sim *s, const struct sim_term *term, struct version version)
{
    for (uint32_t node = 0; node < s->nodes; node++) {
        uint32_t machine = term->machine_of_node[node];
        const struct machine *m = &s->machines[machine];
        for (uint32_t i = 0; m->term == term && m->node != NULL && i < m->node_setup.shard_count; i++) {
            bool owned = m->node_shards[i].storing_rank != NONE32;
            uint32_t slot = owned ? node_slot_of(m->node, i, version) : NONE32;
            if (slot != NONE32) {
                agent_pin(s, machine, slot, sim_between(s, 10, 300));
            }
        }
    }
}

/* Before any trainer learns of it. */
static void keep_base(struct sim *s, uint32_t machine, struct version base)
{
    uint64_t term = s->machines[machine].term->term;
    agent_feed(s, machine, (struct event){.type = EVENT_READABLE, .term = term, .version = base});
}

static void finish(struct sim *s, uint32_t machine, const struct recovery_action *a)
{
    struct machine *m = &s->machines[machine];
    struct sim_term *term = s->terms[m->term->term];
    note_plan(s, machine);
    if (a->type == RECOVERY_READY) {
        keep_base(s, machine, a->version);
        sim_log(s, "term %" PRIu64 " restores %" PRIu64 ".%" PRIu64, term->term, a->version.term, a->version.step);
        if (term->training) {
            check_same_base(s, term, a->version);
            return;
        }
        check_restore(s, machine, a->version);
        let_trainers_read(s, term, a->version);
        start_training(s, term, a->version);
        fault_damage_base(s, term);
        return;
    }
    if (a->type == RECOVERY_BASE_LOST) {
        lose_base(s, machine, a->version);
        return;
    }
    if (a->type == RECOVERY_NOTHING && term->training) {
        return; /* taken up again when a save finds no slot */
    }
    /* What was saved was never decided, or all of it was lost to faults: the user says to start afresh. What cannot be
     * read now is no loss: the job is started again. */
    const struct plan *plan = recovery_plan(m->recovery);
    bool passes = s->doubts && recovery_failure(m->recovery) == TCK_ERR_IO;
    bool fresh = plan->nothing_saved || (version_none(s->anchor.version) && !passes);
    if (a->type == RECOVERY_NOTHING && !fresh) {
        sim_log(s, "term %" PRIu64 " cannot restore: %s", term->term, plan->reason);
        recover_form_soon(s);
        return;
    }
    if (a->type == RECOVERY_NOTHING) {
        term->planned = true; /* it goes on from nothing: that, too, ends what older ones may say */
        keep_base(s, machine, VERSION_NONE);
        start_training(s, term, VERSION_NONE);
    }
    struct task *t = recovery_task(s, machine, 1, TASK_LOCAL);
    struct version base = a->type == RECOVERY_NOTHING ? VERSION_NONE : a->version;
    t->event = (struct event){.type = EVENT_BASED, .term = term->term, .version = base};
}

static void carry_out(struct sim *s, uint32_t machine, const struct recovery_action *action)
{
    struct sim_term *term = s->terms[s->machines[machine].term->term];
    if (action->type == RECOVERY_ASK) {
        ask_all(s, machine);
    } else if (action->type == RECOVERY_LIST) {
        recovery_task(s, machine, storage_delay(s, 1, 30) + (term->dawdles ? sim_between(s, 300, 1500) : 0),
                      TASK_STORED);
    } else if (action->type == RECOVERY_FETCH) {
        request_fetch(s, machine, action);
    } else {
        finish(s, machine, action);
    }
}

/* ---- fetches --------------------------------------------------------------------------------------------------- */

/* The outcome goes to the coordinator, or is lost: then the question comes again. */
static void answer(struct sim *s, const struct task *request, tck_status_t outcome)
{
    bool pulled = request->type == TASK_PULLED;
    if ((pulled ? request->asker : request->machine) == NONE32) {
        return; /* repaired: nobody asked */
    }
    struct task *t = sim_after(s, sim_between(s, 1, 10), TASK_FETCHED, pulled ? request->asker : request->machine);
    t->agent = pulled ? request->asker_agent : request->agent;
    t->term = request->term;
    t->rank = request->rank;
    t->shard = request->shard;
    t->version = request->version;
    t->outcome = outcome;
}

void recover_fetched(struct sim *s, const struct task *t)
{
    struct machine *m = &s->machines[t->machine];
    if (m->recovery != NULL) {
        step_recovery(s, t->machine,
                      (struct recovery_event){.type = RECOVERY_EVENT_FETCHED,
                                              .node = t->rank,
                                              .shard = t->shard,
                                              .version = t->version,
                                              .outcome = t->outcome});
    }
}

/* The source's bytes and the root it has for them; storage's root stands in the manifest. */
static tck_status_t read_source(const struct sim *s, const struct task *t, uint32_t machine, uint64_t *value_out,
                                struct hash128 *root_out)
{
    uint32_t shard = s->terms[t->term]->shard_of_world[t->shard];
    if (t->source == SOURCE_STORAGE) {
        const struct staged *stage = storage_find(s, t->version);
        if (stage == NULL || stage->unread) {
            return TCK_ERR_NOENT;
        }
        if (listing_is_unreadable(s, stage)) {
            return TCK_ERR_IO;
        }
        *value_out = stage->files[shard].value;
        *root_out = stage->files[shard].root;
        return TCK_OK;
    }
    if (t->from == NONE32 || s->machines[t->from].life != t->from_life || !sim_answers(s, machine, t->from)) {
        return TCK_ERR_UNREACHABLE;
    }
    for (uint32_t i = 0; i < s->slots; i++) {
        const struct memory_slot *memory = &s->machines[t->from].segments[shard].slots[i];
        if (memory->state == SLOT_VERIFIED && version_is(memory->version, t->version)) {
            *value_out = memory->value;
            *root_out = memory->root;
            return TCK_OK;
        }
    }
    return TCK_ERR_NOENT;
}

/* The bytes are here (or not): what the agent does when its pull is done. */
void recover_pulled(struct sim *s, const struct task *t)
{
    uint32_t machine = t->machine;
    struct memory_slot *memory = agent_slot(s, machine, t->slot);
    struct hash128 root = {0};
    uint64_t value = 0;
    tck_status_t outcome = read_source(s, t, machine, &value, &root);
    if (outcome == TCK_ERR_UNREACHABLE &&
        s->machines[machine].recovery != NULL) { /* sessions that end are noticed by their own node */
        s->terms[t->term]->dawdles = false;
        report_reach(s, machine, true);
    }
    if (outcome == TCK_OK && !hash128_is(sim_root(value), root)) {
        outcome = TCK_ERR_CORRUPT;
    }
    if (!s->calm && sim_chance(s, s->loss)) {
        outcome = TCK_ERR_IO;
    }
    memory->value = value;
    memory->writers--;
    bool repaired = t->asker == NONE32;
    s->machines[machine].repairing &= !repaired;
    agent_feed(s, machine,
               (struct event){.type = EVENT_VERIFIED,
                              .term = t->term,
                              .slot = t->slot,
                              .version = t->version,
                              .root = root,
                              .ok = outcome == TCK_OK});
    if (repaired && outcome == TCK_OK) {
        check_repaired(s, machine, s->terms[t->term]->shard_of_world[t->shard], t->version);
    }
    answer(s, t, outcome);
}

void recover_fetch(struct sim *s, const struct task *t)
{
    const struct sim_term *term = s->terms[t->term];
    uint32_t machine = term->machine_of_node[t->rank];
    struct machine *m = &s->machines[machine];
    bool gone = m->node == NULL || m->term != term;
    if (gone && sim_reach(s, t->machine, machine) && term_judge(&m->terms, t->term) == TERM_STALE) {
        agent_tell_stale(s, machine, t->machine);
    }
    if (t->phase > 0 && m->agent == t->number) { /* its pull is under way, or done */
        struct task again = *t;
        again.phase++;
        if (again.phase < ASKED_AGAIN_MAX) {
            sim_again(s, &again, ASK_AGAIN_MS);
        }
        return;
    }
    if (gone || !sim_answers(s, t->machine, machine)) { /* nothing heard: asked again */
        struct task again = *t;
        again.phase = 0;
        sim_again(s, &again, ASK_AGAIN_MS);
        return;
    }
    m->fetching = t;
    agent_feed(s, machine,
               (struct event){.type = EVENT_FETCH,
                              .term = t->term,
                              .shard = t->shard,
                              .version = t->version,
                              .floor = t->event.floor,
                              .fallback = t->event.fallback});
    m->fetching = NULL;
}

/* Any place where a copy should be, or storage: whoever has none says so, and another one is asked. */
static void choose_source(struct sim *s, const struct sim_term *term, struct task *ask)
{
    const struct shard_placement *p = &term->placement.shards[ask->shard];
    uint64_t place = sim_random(s, p->owner_count + p->holder_count + 1);
    ask->source = SOURCE_STORAGE;
    ask->from = NONE32;
    if (place < p->owner_count + p->holder_count) {
        uint32_t node = place < p->owner_count ? term->placement.owners[p->first_owner + place]
                                               : p->holders[place - p->owner_count];
        ask->source = SOURCE_PEER;
        ask->from = term->machine_of_node[node];
        ask->from_life = term->life_of_node[node];
    }
}

void recover_repair(struct sim *s, uint32_t machine)
{
    struct machine *m = &s->machines[machine];
    const struct decision *d = node_decision(m->node);
    bool known = d->based || d->watermark.term == d->term;
    for (uint32_t i = 0; s->repairs && known && !m->repairing && i < m->node_setup.shard_count; i++) {
        struct task ask = {.type = TASK_FETCH, .machine = NONE32, .agent = NONE32, .term = d->term};
        ask.rank = m->self;
        ask.shard = m->node_shards[i].world_shard;
        ask.version = d->watermark;
        if (ask.shard == NONE32 || version_none(ask.version) || node_slot_of(m->node, i, ask.version) != NONE32) {
            continue;
        }
        choose_source(s, m->term, &ask);
        m->fetching = &ask;
        agent_feed(s, machine,
                   (struct event){.type = EVENT_FETCH,
                                  .term = d->term,
                                  .shard = ask.shard,
                                  .version = ask.version,
                                  .floor = ask.version});
        m->fetching = NULL;
        return;
    }
}

/* A member that gives a copy away reads its slot meanwhile. */
static void pin_source(struct sim *s, const struct task *t, uint64_t ms)
{
    const struct machine *from = t->from == NONE32 ? NULL : &s->machines[t->from];
    if (t->source == SOURCE_STORAGE || from == NULL || from->node == NULL || from->life != t->from_life) {
        return;
    }
    uint32_t shard = s->terms[t->term]->shard_of_world[t->shard];
    for (uint32_t i = 0; i < from->node_setup.shard_count; i++) {
        uint32_t slot = from->shard_of_local[i] == shard ? node_slot_of(from->node, i, t->version) : NONE32;
        if (slot != NONE32 && node_slot(from->node, slot)->state == SLOT_VERIFIED) {
            agent_pin(s, t->from, slot, ms);
        }
    }
}

void recover_fetch_slot(struct sim *s, uint32_t machine, const struct action *a)
{
    struct machine *m = &s->machines[machine];
    const struct task *request = m->fetching;
    if (a->ok) {
        const struct memory_slot *memory = agent_slot(s, machine, a->slot);
        bool whole = hash128_is(sim_root(memory->value), memory->root);
        answer(s, request, whole ? TCK_OK : TCK_ERR_CORRUPT);
        if (!whole) {
            agent_feed(s, machine, (struct event){.type = EVENT_CORRUPT, .term = m->term->term, .slot = a->slot});
        }
        return;
    }
    if (a->slot == NONE32) {
        answer(s, request, TCK_ERR_BUSY);
        return;
    }
    uint64_t slow = !s->calm && sim_chance(s, 100) ? sim_between(s, 100, 600) : 0;
    struct task *pull = sim_after(s, slow + sim_between(s, 5, 60), TASK_PULLED, machine);
    pull->agent = m->agent;
    pull->term = request->term;
    pull->rank = request->rank;
    pull->shard = request->shard;
    pull->version = request->version;
    pull->source = request->source;
    pull->from = request->from;
    pull->from_life = request->from_life;
    pull->slot = a->slot;
    pull->asker = request->machine;
    pull->asker_agent = request->agent;
    pin_source(s, request, slow + 60);
    if (request->machine == NONE32) {
        m->repairing = true;
        return;
    }
    struct task again = *request;
    again.phase = 1;
    again.number = m->agent;
    sim_again(s, &again, ASK_AGAIN_MS);
}
