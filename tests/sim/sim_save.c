/* SPDX-License-Identifier: Apache-2.0
 * Trainers that step together and save now and then; digests; copies from memory to memory. */
#include "sim.h"
#include <inttypes.h>

#define LAST_AGAIN_MS 10

uint64_t sim_value(uint32_t shard, struct version version)
{
    return ((uint64_t)shard + 1) << 56 | version.term << 32 | (version.step + 1);
}

/* Shards of twins are numbered after those of one rank; the second of a pair is the one that may differ. */
static uint64_t saved_value(const struct sim *s, uint32_t rank, uint32_t shard, struct version version)
{
    bool differs = s->twins_differ && shard >= s->ranks && rank % 2 == 1 && version.step % 2 == 1;
    return sim_value(shard, version) ^ (differs ? 2 : 0);
}

bool sim_was_saved(const struct sim *s, uint32_t shard, struct version version, uint64_t value)
{
    return value == saved_value(s, 0, shard, version) || value == saved_value(s, 1, shard, version);
}

struct hash128 sim_root(uint64_t value)
{
    return (struct hash128){value, ~value};
}

/* ---- trainers -------------------------------------------------------------------------------------------------- */

static bool all_trainers_alive(const struct sim *s, const struct sim_term *term)
{
    for (uint32_t r = 0; r < s->ranks; r++) {
        const struct machine *m = &s->machines[term->machine_of_node[term->world.node_of_rank[r]]];
        if (!term->trainers[r].alive || m->life != term->life_of_node[term->world.node_of_rank[r]]) {
            return false;
        }
    }
    return true;
}

static bool any_trainer_copies(const struct sim *s, const struct sim_term *term)
{
    for (uint32_t r = 0; r < s->ranks; r++) {
        if (term->trainers[r].copying) {
            return true;
        }
    }
    return false;
}

static bool any_trainer_alive(const struct sim *s, const struct sim_term *term)
{
    for (uint32_t r = 0; r < s->ranks; r++) {
        if (term->trainers[r].alive) {
            return true;
        }
    }
    return false;
}

/* One optimizer step of all ranks: collectives bind them together, so one dead trainer stops all. What is left of a
 * superseded term goes on for a while without the others: it must do no harm even so. */
void save_step(struct sim *s, const struct task *t)
{
    struct sim_term *term = s->terms[t->term];
    bool superseded = t->term != s->claimed;
    if (s->quiet_at > 0) {
        return;
    }
    if (superseded ? !any_trainer_alive(s, term) || sim_chance(s, 200) : !all_trainers_alive(s, term)) {
        return;
    }
    struct task *next = sim_after(s, s->overloaded ? sim_between(s, 2, 8) : sim_between(s, 10, 40), TASK_STEP, NONE32);
    next->term = t->term;
    if (any_trainer_copies(s, term) || term->step + 1 >= SIM_STEPS) {
        return; /* the fence before the optimizer step */
    }
    term->step++;
    if (term->step % s->mem_every != 0) {
        return;
    }
    for (uint32_t r = 0; r < s->ranks; r++) {
        struct task *begin = sim_after(s, sim_between(s, 0, s->overloaded ? 3 : 8), TASK_BEGIN, NONE32);
        begin->term = t->term;
        begin->rank = r;
        begin->version.step = term->step;
        term->trainers[r].copying = true;
    }
}

static uint32_t machine_of_rank(const struct sim_term *term, uint32_t rank)
{
    return term->machine_of_node[term->world.node_of_rank[rank]];
}

static uint32_t local_rank(const struct sim_term *term, uint32_t rank)
{
    uint32_t local = 0;
    for (uint32_t r = 0; r < rank; r++) {
        local += term->world.node_of_rank[r] == term->world.node_of_rank[rank];
    }
    return local;
}

static uint32_t global_rank(const struct sim_term *term, uint32_t node, uint32_t local)
{
    uint32_t r = 0;
    while (term->world.node_of_rank[r] != node || local_rank(term, r) != local) {
        r++;
    }
    return r;
}

void save_begin_rank(struct sim *s, const struct task *t)
{
    struct sim_term *term = s->terms[t->term];
    uint32_t machine = machine_of_rank(term, t->rank);
    const struct machine *m = &s->machines[machine];
    struct trainer *trainer = &term->trainers[t->rank];
    trainer->copying = false;
    if (!trainer->alive || m->node == NULL || m->term != term || trainer->agent != m->agent) {
        return; /* nobody answers: this step is not saved */
    }
    trainer->asked = t->version.step;
    if (term->first_begin[t->version.step] == 0) {
        term->first_begin[t->version.step] = s->now;
    }
    agent_feed(s, machine,
               (struct event){.type = EVENT_BEGIN,
                              .term = term->term,
                              .rank = local_rank(term, t->rank),
                              .version = {0, t->version.step},
                              .to_storage = t->version.step % s->storage_every == 0});
}

void save_last_step(struct sim *s)
{
    struct sim_term *term = s->terms[s->claimed];
    s->last_step = (struct version){term->term, ++term->step};
    s->last_refused = false;
    s->last_tries++;
    sim_log(s, "the training ends with " V_FMT, V_ARG(s->last_step));
    for (uint32_t r = 0; r < s->ranks; r++) {
        struct task *t = sim_after(s, sim_between(s, 0, 50), TASK_LAST, NONE32);
        t->rank = r;
        t->version = s->last_step;
    }
}

void save_begin_last(struct sim *s, const struct task *t)
{
    if (!version_is(t->version, s->last_step)) {
        return;
    }
    struct sim_term *term = s->terms[s->last_step.term];
    uint32_t machine = machine_of_rank(term, t->rank);
    const struct machine *m = &s->machines[machine];
    struct trainer *trainer = &term->trainers[t->rank];
    if (m->node != NULL && trainer->agent == m->agent && !trainer->copying) {
        uint64_t step = s->last_step.step;
        trainer->asked = step;
        term->first_begin[step] = term->first_begin[step] == 0 ? s->now : term->first_begin[step];
        agent_feed(s, machine,
                   (struct event){.type = EVENT_BEGIN,
                                  .term = term->term,
                                  .rank = local_rank(term, t->rank),
                                  .version = {0, step},
                                  .to_storage = true,
                                  .last = true});
        if (trainer->copying) {
            return; /* it has its slots */
        }
    }
    sim_again(s, t, LAST_AGAIN_MS);
}

void save_refused(struct sim *s, uint32_t machine, const struct action *a)
{
    if (version_is(a->version, s->last_step) && a->refusal != REFUSAL_NOT_YET) {
        sim_log(s, "m%u refuses the last step: %s", machine, refusal_text(a->refusal));
        s->last_refused = true;
    }
}

void save_granted(struct sim *s, uint32_t machine, const struct action *a)
{
    const struct machine *m = &s->machines[machine];
    struct sim_term *term = s->terms[m->term->term];
    uint32_t rank = global_rank(term, m->self, a->rank);
    term->trainers[rank].copying = true;
    term->trainers[rank].waiting = true;
    struct task *t = sim_after(s, sim_between(s, 0, 4), TASK_GRANTED, machine);
    t->agent = m->agent;
    t->from_life = m->life;
    t->term = term->term;
    t->rank = rank;
    t->version = a->version;
}

/* From here on the copying goes on whatever becomes of the agent. */
void save_copy(struct sim *s, const struct task *t)
{
    struct trainer *trainer = &s->terms[t->term]->trainers[t->rank];
    if (!trainer->alive) {
        return;
    }
    trainer->waiting = false;
    struct task *copied = sim_after(s, sim_between(s, 2, s->overloaded ? 5 : 60), TASK_COPIED, t->machine);
    copied->from_life = t->from_life;
    copied->term = t->term;
    copied->rank = t->rank;
    copied->version = t->version;
}

/* The trainer no longer writes into this slot; if it has written all, it has left its seal. */
static void end_copy(struct memory_slot *memory, uint64_t value, bool whole)
{
    if (whole) {
        memory->value = value;
        memory->seal = memory->copied;
    }
    memory->writers = 0;
    memory->copied = VERSION_NONE;
}

/* The slots of one rank, if its machine still serves the term. */
static uint32_t slots_of_rank(struct sim *s, const struct sim_term *term, uint32_t rank, struct memory_slot **out,
                              uint32_t *shards_out)
{
    struct machine *m = &s->machines[machine_of_rank(term, rank)];
    uint32_t count = 0;
    for (uint32_t i = 0; m->term == term && i < m->node_setup.shard_count; i++) {
        for (uint32_t k = 0; k < s->slots && m->node_shards[i].storing_rank == local_rank(term, rank); k++) {
            shards_out[count] = m->shard_of_local[i];
            out[count++] = &m->segments[m->shard_of_local[i]].slots[k];
        }
    }
    return count;
}

/* The bytes of its shards, in whatever slots the rank was given: the trainer knows no other. */
static void end_copies(struct sim *s, const struct sim_term *term, uint32_t rank, struct version version, bool whole)
{
    struct memory_slot *slots[SIM_SHARDS * SIM_SLOTS];
    uint32_t shards[SIM_SHARDS * SIM_SLOTS];
    uint32_t count = slots_of_rank(s, term, rank, slots, shards);
    for (uint32_t i = 0; i < count; i++) {
        if (version_is(slots[i]->copied, version)) {
            end_copy(slots[i], saved_value(s, rank, shards[i], version), whole);
        }
    }
}

static void tell_step(struct sim *s, const struct sim_term *term, uint32_t rank, enum event_type type, uint64_t step)
{
    agent_feed(s, machine_of_rank(term, rank),
               (struct event){.type = type, .term = term->term, .rank = local_rank(term, rank), .version = {0, step}});
}

void save_copied(struct sim *s, const struct task *t)
{
    struct sim_term *term = s->terms[t->term];
    struct machine *m = &s->machines[t->machine];
    if (!term->trainers[t->rank].alive || m->life != t->from_life) {
        return;
    }
    struct trainer *trainer = &term->trainers[t->rank];
    bool gives_up = !s->calm && sim_chance(s, 10);
    trainer->copying = false;
    trainer->sealed = gives_up ? trainer->sealed : t->version.step;
    end_copies(s, term, t->rank, t->version, !gives_up);
    if (m->term == term && trainer->agent == m->agent) {
        tell_step(s, term, t->rank, gives_up ? EVENT_ABANDON : EVENT_SEAL, t->version.step);
    }
}

/* ---- agents that come and go ----------------------------------------------------------------------------------- */

/* Slots whose grant has not arrived are not written. */
void save_agent_stopped(struct sim *s, uint32_t machine)
{
    const struct machine *m = &s->machines[machine];
    struct sim_term *term = m->term == NULL ? NULL : s->terms[m->term->term];
    for (uint32_t r = 0; term != NULL && r < s->ranks; r++) {
        struct trainer *trainer = &term->trainers[r];
        if (machine_of_rank(term, r) == machine && trainer->waiting) {
            trainer->waiting = trainer->copying = false;
            end_copies(s, term, r, (struct version){term->term, trainer->asked}, false);
        }
    }
}

void save_agent_started(struct sim *s, uint32_t machine)
{
    const struct machine *m = &s->machines[machine];
    for (uint32_t r = 0; r < s->ranks; r++) {
        if (machine_of_rank(m->term, r) == machine && m->term->trainers[r].alive) {
            struct task *t = sim_after(s, sim_between(s, 1, 80), TASK_RETURN, machine);
            t->agent = m->agent;
            t->term = m->term->term;
            t->rank = r;
        }
    }
}

/* A trainer comes back when it does not copy; what its old connection may have lost is said again. */
void save_return(struct sim *s, const struct task *t)
{
    struct trainer *trainer = &s->terms[t->term]->trainers[t->rank];
    const struct machine *m = &s->machines[t->machine];
    if (!trainer->alive || m->term == NULL || m->term->term != t->term) {
        return;
    }
    if (trainer->copying) {
        struct task *again = sim_after(s, 5, TASK_RETURN, t->machine);
        again->agent = t->agent;
        again->term = t->term;
        again->rank = t->rank;
        return;
    }
    trainer->agent = m->agent;
    if (trainer->sealed > 0) {
        tell_step(s, m->term, t->rank, EVENT_SEAL, trainer->sealed);
    }
    if (trainer->asked > trainer->sealed) {
        tell_step(s, m->term, t->rank, EVENT_ABANDON, trainer->asked);
    }
}

/* All slots that the rank was filling bear its seal. */
static void take_seal(struct sim *s, const struct sim_term *term, uint32_t rank)
{
    struct memory_slot *slots[SIM_SHARDS * SIM_SLOTS];
    uint32_t shards[SIM_SHARDS * SIM_SLOTS];
    uint32_t count = slots_of_rank(s, term, rank, slots, shards);
    struct version sealed = VERSION_NONE;
    for (uint32_t i = 0; i < count; i++) {
        if (slots[i]->state == SLOT_FILLING && slots[i]->version.term == term->term) {
            if (!version_is(slots[i]->seal, slots[i]->version)) {
                return;
            }
            sealed = slots[i]->version;
        }
    }
    if (!version_none(sealed)) {
        tell_step(s, term, rank, EVENT_SEAL, sealed.step);
    }
}

void save_take_seals(struct sim *s, uint32_t machine)
{
    const struct machine *m = &s->machines[machine];
    for (uint32_t r = 0; r < s->ranks; r++) {
        bool here = machine_of_rank(m->term, r) == machine;
        if (here && (!m->term->trainers[r].alive || m->term->trainers[r].agent != m->agent)) {
            take_seal(s, m->term, r);
        }
    }
}

/* ---- trainers that lose their term ----------------------------------------------------------------------------- */

/* False: it is gone, or was frozen before. */
static bool freezes(struct sim *s, const struct memory_slot *memory)
{
    return s->freezes && !s->calm && !version_none(memory->copied) && !memory->frozen && sim_chance(s, 500);
}

static void freeze(struct sim *s, uint32_t machine, uint32_t shard, uint32_t slot)
{
    struct memory_slot *memory = &s->machines[machine].segments[shard].slots[slot];
    sim_log(s, "m%u: the trainer that writes shard %u of %" PRIu64 ".%" PRIu64 " is frozen", machine, shard,
            memory->copied.term, memory->copied.step);
    memory->frozen = true;
    struct task *t = sim_after(s, sim_between(s, 20, 1500), TASK_THAW, machine);
    t->from_life = s->machines[machine].life;
    t->shard = shard;
    t->slot = slot;
    t->version = memory->copied;
}

void save_orphan_writer(struct sim *s, uint32_t machine, uint32_t shard, uint32_t slot)
{
    struct memory_slot *memory = &s->machines[machine].segments[shard].slots[slot];
    if (freezes(s, memory)) {
        freeze(s, machine, shard, slot);
    } else if (!memory->frozen) {
        end_copy(memory, 0, false);
    }
}

/* It knows of no newer term: its bytes go where its copy was, and so may its seal. */
void save_thaw(struct sim *s, const struct task *t)
{
    struct machine *m = &s->machines[t->machine];
    if (m->life != t->from_life) {
        return;
    }
    struct memory_slot *memory = &m->segments[t->shard].slots[t->slot];
    memory->frozen = false;
    memory->value = sim_value(t->shard, t->version) ^ 4; /* some of them */
    s->touched = true;
    end_copy(memory, sim_value(t->shard, t->version), sim_chance(s, 500));
}

void save_release_slots(struct sim *s, uint32_t machine)
{
    const struct machine *m = &s->machines[machine];
    for (uint32_t i = 0; i < node_slot_total(m->node); i++) {
        const struct slot *slot = node_slot(m->node, i);
        if (slot->state == SLOT_QUARANTINED && agent_slot(s, machine, i)->writers == 0) {
            struct event gone = {.type = EVENT_WRITER_GONE, .term = m->term->term, .slot = i, .version = slot->version};
            agent_feed(s, machine, gone);
        }
    }
}

static void end_or_freeze(struct sim *s, const struct sim_term *term, uint32_t rank, struct memory_slot *memory,
                          uint32_t shard)
{
    const struct trainer *trainer = &term->trainers[rank];
    uint32_t machine = machine_of_rank(term, rank);
    bool wrote = trainer->copying && !trainer->waiting;
    if (version_none(memory->copied) || memory->frozen) {
        return;
    }
    if (wrote && freezes(s, memory)) {
        freeze(s, machine, shard, (uint32_t)(memory - s->machines[machine].segments[shard].slots));
        return;
    }
    end_copy(memory, saved_value(s, rank, shard, memory->copied), wrote && sim_chance(s, 300));
}

void save_trainer_dies(struct sim *s, struct sim_term *term, uint32_t rank)
{
    struct memory_slot *slots[SIM_SHARDS * SIM_SLOTS];
    uint32_t shards[SIM_SHARDS * SIM_SLOTS];
    uint32_t count = slots_of_rank(s, term, rank, slots, shards);
    struct trainer *trainer = &term->trainers[rank];
    for (uint32_t i = 0; i < count; i++) {
        end_or_freeze(s, term, rank, slots[i], shards[i]);
    }
    trainer->alive = trainer->copying = trainer->waiting = false;
    uint32_t machine = machine_of_rank(term, rank);
    const struct machine *m = &s->machines[machine];
    if (m->node != NULL && m->term == term && trainer->agent == m->agent) {
        take_seal(s, term, rank);
        struct event lost = {.type = EVENT_RANK_LOST, .term = term->term, .rank = local_rank(term, rank)};
        agent_feed(s, machine, lost);
        save_release_slots(s, machine);
    }
}

/* ---- digests --------------------------------------------------------------------------------------------------- */

void save_digest(struct sim *s, const struct task *t)
{
    struct memory_slot *memory = agent_slot(s, t->machine, t->slot);
    memory->readers--;
    agent_feed(s, t->machine,
               (struct event){.type = EVENT_VERIFIED,
                              .term = s->machines[t->machine].term->term,
                              .slot = t->slot,
                              .version = t->version,
                              .root = sim_root(memory->value),
                              .ok = s->calm || !sim_chance(s, 3)});
}

/* ---- copies ---------------------------------------------------------------------------------------------------- */

void save_replicate(struct sim *s, uint32_t machine, const struct action *a)
{
    const struct machine *m = &s->machines[machine];
    struct event offer = {.type = EVENT_OFFER,
                          .term = m->term->term,
                          .node = m->self,
                          .shard = a->shard,
                          .version = a->version,
                          .root = a->root};
    uint32_t to = m->term->machine_of_node[a->node];
    if (s->machines[to].life == m->term->life_of_node[a->node]) {
        sim_send(s, machine, to, &offer);
        agent_pin(s, machine, a->slot, s->overloaded ? sim_between(s, 30, 150) : sim_between(s, 5, TRANSFER_MS));
    }
    struct task *t = sim_after(s, s->overloaded ? CROWDED_MS : TRANSFER_MS, TASK_COPY_TIMEOUT, machine);
    t->agent = m->agent;
    t->event = (struct event){
        .type = EVENT_REPLICA, .term = m->term->term, .node = a->node, .shard = a->shard, .version = a->version};
}

void save_copy_timeout(struct sim *s, const struct task *t)
{
    agent_feed(s, t->machine, t->event);
}

/* How long a copy takes to come in. */
static uint64_t transfer_ms(struct sim *s, struct machine *m)
{
    if (!s->overloaded) {
        return sim_between(s, 2, 40);
    }
    uint64_t begins = m->link_busy_until > s->now ? m->link_busy_until : s->now;
    uint64_t mean_ms = OVERLOADED_COPY_MS * s->nodes / (s->shards * (s->copies - 1));
    m->link_busy_until = begins + sim_between(s, mean_ms / 2, mean_ms * 3 / 2);
    return m->link_busy_until - s->now;
}

void save_store(struct sim *s, uint32_t machine, const struct action *a)
{
    struct machine *m = &s->machines[machine];
    struct task *t = sim_after(s, transfer_ms(s, m), TASK_TRANSFER, machine);
    t->agent = m->agent;
    t->from = m->term->machine_of_node[a->node];
    t->from_life = m->term->life_of_node[a->node];
    t->slot = a->slot;
    t->shard = m->shard_of_local[a->slot / s->slots];
    t->version = a->version;
}

/* The sender's bytes as they are now: if its slot was used again meanwhile, they are of two versions. */
static bool read_peer(const struct sim *s, const struct task *t, uint64_t *value_out)
{
    const struct machine *from = &s->machines[t->from];
    if (from->life != t->from_life || !sim_answers(s, t->machine, t->from)) {
        return false;
    }
    *value_out = 0;
    for (uint32_t i = 0; i < s->slots; i++) {
        const struct memory_slot *memory = &from->segments[t->shard].slots[i];
        if (memory->state == SLOT_VERIFIED && version_is(memory->version, t->version)) {
            *value_out = memory->value;
        }
    }
    return true;
}

void save_transfer(struct sim *s, const struct task *t)
{
    struct memory_slot *memory = agent_slot(s, t->machine, t->slot);
    uint64_t value = 0;
    bool arrived = read_peer(s, t, &value) && (s->calm || !sim_chance(s, s->loss));
    if (!s->calm && sim_chance(s, 3)) {
        value ^= 1; /* damaged on the way */
    }
    memory->value = value;
    memory->writers--;
    agent_feed(s, t->machine,
               (struct event){.type = EVENT_VERIFIED,
                              .term = s->machines[t->machine].term->term,
                              .slot = t->slot,
                              .version = t->version,
                              .root = sim_root(value),
                              .ok = arrived});
}
