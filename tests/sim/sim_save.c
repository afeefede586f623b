/* SPDX-License-Identifier: Apache-2.0
 * Trainers that step together and save now and then; digests; copies from memory to memory. */
#include "sim.h"
#include <inttypes.h>

uint64_t sim_value(uint32_t shard, struct version version)
{
    return ((uint64_t)shard + 1) << 56 | version.term << 32 | (version.step + 1);
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

/* One optimizer step of all ranks: collectives bind them together, so one dead trainer stops all. */
void save_step(struct sim *s, const struct task *t)
{
    struct sim_term *term = s->terms[t->term];
    if (!all_trainers_alive(s, term) || (t->term != s->claimed && sim_chance(s, 500))) {
        return;
    }
    struct task *next = sim_after(s, sim_between(s, 10, 40), TASK_STEP, NONE32);
    next->term = t->term;
    if (any_trainer_copies(s, term) || term->step + 1 >= SIM_STEPS) {
        return; /* the fence before the optimizer step */
    }
    term->step++;
    if (term->step % s->mem_every != 0) {
        return;
    }
    for (uint32_t r = 0; r < s->ranks; r++) {
        struct task *begin = sim_after(s, sim_between(s, 0, 8), TASK_BEGIN, NONE32);
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
    term->trainers[t->rank].copying = false;
    if (!term->trainers[t->rank].alive || m->node == NULL || m->term != term) {
        return; /* nobody answers: this step is not saved */
    }
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

void save_granted(struct sim *s, uint32_t machine, const struct action *a)
{
    const struct machine *m = &s->machines[machine];
    struct sim_term *term = s->terms[m->term->term];
    uint32_t rank = global_rank(term, m->self, a->rank);
    term->trainers[rank].copying = true;
    struct task *t = sim_after(s, sim_between(s, 2, 60), TASK_COPIED, machine);
    t->from_life = m->life;
    t->term = term->term;
    t->rank = rank;
    t->version = a->version;
}

/* The bytes of one shard, in whatever slot the rank was given: the trainer knows no other. */
static void finish_copy(struct sim *s, struct machine *m, uint32_t shard, struct version version)
{
    for (uint32_t i = 0; i < s->slots; i++) {
        struct memory_slot *memory = &m->segments[shard].slots[i];
        if (version_is(memory->copied, version)) {
            memory->value = sim_value(shard, version);
            memory->writers = 0;
            memory->copied = VERSION_NONE;
        }
    }
}

void save_copied(struct sim *s, const struct task *t)
{
    struct sim_term *term = s->terms[t->term];
    struct machine *m = &s->machines[t->machine];
    if (!term->trainers[t->rank].alive || m->life != t->from_life) {
        return;
    }
    term->trainers[t->rank].copying = false;
    uint32_t local = local_rank(term, t->rank);
    for (uint32_t i = 0; m->term == term && i < m->node_setup.shard_count; i++) {
        if (m->node_shards[i].storing_rank == local) {
            finish_copy(s, m, m->shard_of_local[i], t->version);
        }
    }
    bool gives_up = !s->calm && sim_chance(s, 10);
    agent_feed(s, t->machine,
               (struct event){.type = gives_up ? EVENT_ABANDON : EVENT_SEAL,
                              .term = term->term,
                              .rank = local,
                              .version = {0, t->version.step}});
}

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
    }
    struct task *t = sim_after(s, TRANSFER_MS, TASK_COPY_TIMEOUT, machine);
    t->agent = m->agent;
    t->event = (struct event){
        .type = EVENT_REPLICA, .term = m->term->term, .node = a->node, .shard = a->shard, .version = a->version};
}

void save_copy_timeout(struct sim *s, const struct task *t)
{
    agent_feed(s, t->machine, t->event);
}

void save_store(struct sim *s, uint32_t machine, const struct action *a)
{
    const struct machine *m = &s->machines[machine];
    struct task *t = sim_after(s, sim_between(s, 2, 40), TASK_TRANSFER, machine);
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
    if (from->life != t->from_life || !sim_reach(s, t->from, t->machine)) {
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
