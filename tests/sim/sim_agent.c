/* SPDX-License-Identifier: Apache-2.0
 * Carries out the machines' actions, as the agent does with sockets, UCX and io_uring. */
#include "sim.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool sim_reach(const struct sim *s, uint32_t a, uint32_t b)
{
    const struct machine *x = &s->machines[a], *y = &s->machines[b];
    return x->agent_up && y->agent_up && (a == b || x->group == y->group);
}

bool sim_answers(const struct sim *s, uint32_t a, uint32_t b)
{
    return sim_reach(s, a, b) && s->machines[b].stopped_until <= s->now;
}

uint64_t sim_clock(const struct sim *s, uint32_t machine)
{
    return s->now + s->machines[machine].clock_ahead;
}

struct memory_slot *agent_slot(struct sim *s, uint32_t machine, uint32_t local_slot)
{
    struct machine *m = &s->machines[machine];
    uint32_t shard = m->shard_of_local[local_slot / s->slots];
    return &m->segments[shard].slots[local_slot % s->slots];
}

void agent_pin(struct sim *s, uint32_t machine, uint32_t local_slot, uint64_t ms)
{
    const struct machine *m = &s->machines[machine];
    agent_slot(s, machine, local_slot)->readers++;
    agent_feed(s, machine, (struct event){.type = EVENT_PIN, .term = m->term->term, .slot = local_slot});
    struct task *t = sim_after(s, ms, TASK_UNPIN, machine);
    t->agent = m->agent;
    t->slot = local_slot;
}

void agent_unpin(struct sim *s, const struct task *t)
{
    uint64_t term = s->machines[t->machine].term->term;
    agent_slot(s, t->machine, t->slot)->readers--;
    agent_feed(s, t->machine, (struct event){.type = EVENT_UNPIN, .term = term, .slot = t->slot});
}

/* ---- messages -------------------------------------------------------------------------------------------------- */

void sim_send(struct sim *s, uint32_t from, uint32_t to, const struct event *event)
{
    uint32_t copies = from != to && sim_chance(s, s->duplicate) ? 2 : 1;
    for (uint32_t i = 0; i < copies; i++) {
        if (from != to && (sim_chance(s, s->loss) || !sim_reach(s, from, to))) {
            continue;
        }
        uint64_t delay = from == to ? 1 : sim_chance(s, 30) ? sim_between(s, 20, 300) : sim_between(s, 1, 10);
        struct task *t = sim_after(s, delay, TASK_MESSAGE, to);
        t->from = from;
        t->from_life = s->machines[from].life;
        t->event = *event;
    }
}

/* Sends to a node of the term that the machine has joined. */
static void send_node(struct sim *s, uint32_t from, uint32_t node, struct event event)
{
    const struct machine *m = &s->machines[from];
    event.term = m->term->term;
    event.node = m->self;
    uint32_t to = m->term->machine_of_node[node];
    if (s->machines[to].life == m->term->life_of_node[node]) {
        sim_send(s, from, to, &event);
    }
}

void agent_tell_stale(struct sim *s, uint32_t machine, uint32_t to)
{
    struct event tell = {.type = EVENT_TICK, .term = s->machines[machine].terms.adopted};
    sim_send(s, machine, to, &tell);
}

void agent_message(struct sim *s, const struct task *t)
{
    struct machine *m = &s->machines[t->machine];
    if (!m->agent_up || !sim_reach(s, t->from, t->machine) || s->machines[t->from].life != t->from_life) {
        return;
    }
    enum term_verdict verdict = term_judge(&m->terms, t->event.term);
    if (verdict == TERM_STALE) {
        agent_tell_stale(s, t->machine, t->from);
    } else if (verdict == TERM_NEWER) {
        sim_log(s, "m%u learns of term %" PRIu64 " and leaves its own", t->machine, t->event.term);
        agent_stop(s, t->machine);
        m->agent_up = true;
        term_adopt(&m->terms, t->event.term);
    }
    agent_feed(s, t->machine, t->event); /* of an older term too: the machines must drop it themselves */
}

/* ---- actions --------------------------------------------------------------------------------------------------- */

static void write_header(struct sim *s, uint32_t machine, uint32_t local_slot)
{
    struct memory_slot *memory = agent_slot(s, machine, local_slot);
    const struct node *node = s->machines[machine].node;
    const struct slot *slot = node_slot(node, local_slot);
    check_header(s, machine, local_slot);
    bool same = memory->state == slot->state && version_is(memory->version, slot->version);
    if (!same && (slot->state == SLOT_FILLING || slot->state == SLOT_RECEIVING)) {
        memory->value = 0;
        memory->writers++;
        memory->copied = slot->state == SLOT_FILLING ? slot->version : VERSION_NONE;
        memory->seal = VERSION_NONE;
    }
    if (!same && slot->state == SLOT_SEALED) {
        memory->sealed_ms = s->now;
    }
    memory->to_storage = slot->to_storage;
    memory->state = slot->state;
    memory->version = slot->version;
    memory->root = slot->root;
    memory->committed =
        slot->state == SLOT_VERIFIED && decision_fate(node_decision(node), slot->version) == FATE_COMMITTED;
    s->touched = true;
}

static void announce(struct sim *s, uint32_t machine)
{
    struct machine *m = &s->machines[machine];
    m->kept = *coordinator_decision(m->coordinator);
    check_decision(s, machine);
    for (uint32_t node = 0; node < s->nodes; node++) {
        send_node(s, machine, node, (struct event){.type = EVENT_DECISION, .decision = m->kept});
    }
}

static void to_coordinator(struct sim *s, uint32_t machine, enum event_type type, const struct action *a)
{
    send_node(s, machine, 0,
              (struct event){.type = type,
                             .version = a->version,
                             .layout = s->machines[machine].term->world.layout,
                             .attempt = a->attempt,
                             .ok = a->ok,
                             .to_storage = a->to_storage,
                             .refusal = a->refusal});
}

static void answer_offer(struct sim *s, uint32_t machine, const struct action *a)
{
    send_node(s, machine, a->node,
              (struct event){.type = EVENT_REPLICA,
                             .shard = a->shard,
                             .version = a->version,
                             .root = a->root,
                             .ok = a->type == ACTION_ACK_OFFER,
                             .refusal = a->refusal});
}

static void make_digests(struct sim *s, uint32_t machine, const struct action *a)
{
    agent_slot(s, machine, a->slot)->readers++;
    struct task *t = sim_after(s, sim_between(s, 1, 10), TASK_DIGEST, machine);
    t->agent = s->machines[machine].agent;
    t->slot = a->slot;
    t->version = a->version;
}

static void act_on_slot(struct sim *s, uint32_t machine, const struct action *a)
{
    if (a->type == ACTION_WRITE_HEADER) {
        write_header(s, machine, a->slot);
    } else if (a->type == ACTION_VERIFY) {
        make_digests(s, machine, a);
    } else if (a->type == ACTION_REPLICATE) {
        save_replicate(s, machine, a);
    } else if (a->type == ACTION_STORE) {
        save_store(s, machine, a);
    } else {
        recover_fetch_slot(s, machine, a);
    }
}

static void act(struct sim *s, uint32_t machine, const struct action *a)
{
    switch (a->type) {
    case ACTION_GRANT:
        save_granted(s, machine, a);
        break;
    case ACTION_REFUSE:
        save_refused(s, machine, a);
        break;
    case ACTION_NOTIFY:
        check_told(s, machine, a);
        break;
    case ACTION_WRITE_HEADER:
    case ACTION_VERIFY:
    case ACTION_REPLICATE:
    case ACTION_STORE:
    case ACTION_FETCH_SLOT:
        act_on_slot(s, machine, a);
        break;
    case ACTION_REJECT_OFFER:
    case ACTION_ACK_OFFER:
        answer_offer(s, machine, a);
        break;
    case ACTION_SEND_READY:
        to_coordinator(s, machine, EVENT_READY, a);
        break;
    case ACTION_SEND_REFUSED:
        to_coordinator(s, machine, EVENT_REFUSED, a);
        break;
    case ACTION_SEND_DRAINED:
        to_coordinator(s, machine, EVENT_DRAINED, a);
        break;
    case ACTION_DRAIN:
        storage_drain(s, machine, a);
        break;
    case ACTION_ANNOUNCE:
        announce(s, machine);
        break;
    case ACTION_PUBLISH:
        check_publish(s, machine, a);
        storage_publish(s, machine, a);
        break;
    }
}

static bool for_coordinator(enum event_type type)
{
    return type == EVENT_READY || type == EVENT_REFUSED || type == EVENT_DRAINED || type == EVENT_PUBLISHED ||
           type == EVENT_READABLE || type == EVENT_BASED || type == EVENT_BASE_LOST || type == EVENT_DRAIN_ASKED;
}

/* Runs one machine; its actions are copied first, because carrying them out may feed the next event. */
static void step_machine(struct sim *s, uint32_t machine, const struct event *event, bool coordinator)
{
    struct machine *m = &s->machines[machine];
    uint32_t cap = coordinator ? coordinator_actions_max(&m->coordinator_setup) : node_actions_max(&m->node_setup);
    struct action items[256];
    struct actions out = {.items = items, .cap = cap};
    if (coordinator) {
        coordinator_step(m->coordinator, event, &out);
    } else {
        node_step(m->node, event, &out);
    }
    if (out.count > cap || cap > 256) {
        sim_fail(s, "m%u made %u actions of %u", machine, out.count, cap);
        return;
    }
    if (!coordinator && event->type == EVENT_DECISION && m->coordinator == NULL) {
        m->kept = *node_decision(m->node);
    }
    uint32_t agent = m->agent;
    for (uint32_t i = 0; i < out.count && m->agent == agent; i++) {
        act(s, machine, &items[i]);
    }
}

void agent_feed(struct sim *s, uint32_t machine, struct event event)
{
    struct machine *m = &s->machines[machine];
    event.now_ms = sim_clock(s, machine);
    check_fenced(s, machine);
    if (for_coordinator(event.type)) {
        if (m->coordinator != NULL) {
            step_machine(s, machine, &event, true);
            recover_refused(s, machine, &event);
        }
        return;
    }
    if (event.type == EVENT_BEGIN && m->coordinator != NULL) {
        step_machine(s, machine, &event, true);
    }
    if (m->node == NULL) {
        return;
    }
    step_machine(s, machine, &event, false);
}

void agent_tick(struct sim *s, uint32_t machine)
{
    struct machine *m = &s->machines[machine];
    if (m->node != NULL) {
        save_take_seals(s, machine);
        save_release_slots(s, machine);
        agent_feed(s, machine, (struct event){.type = EVENT_TICK, .term = m->term->term});
        check_sealed(s, machine);
        recover_repair(s, machine);
    }
    if (m->coordinator != NULL) {
        struct event tick = {.type = EVENT_TICK, .term = m->term->term, .now_ms = sim_clock(s, machine)};
        step_machine(s, machine, &tick, true);
        for (uint32_t node = 0; node < s->nodes; node++) { /* the decision rides on every heartbeat */
            const struct decision *d = coordinator_decision(m->coordinator);
            send_node(s, machine, node, (struct event){.type = EVENT_DECISION, .decision = *d});
        }
    }
    if (m->coordinator != NULL) {
        recover_tick(s, machine);
    }
}

/* ---- start and stop -------------------------------------------------------------------------------------------- */

static struct node_shard duty_of(struct sim *s, const struct machine *m, uint32_t shard)
{
    const struct sim_term *term = m->term;
    uint32_t w = term->world_of_shard[shard];
    const struct shard_placement *p = &term->placement.shards[w];
    struct node_shard local_shard = {.world_shard = NONE32, .slot_count = s->slots, .storing_rank = NONE32};
    local_shard.held = placement_is_holder(&term->placement, w, m->self);
    if (placement_is_owner(&term->placement, w, m->self)) {
        uint32_t local = 0;
        for (uint32_t r = 0; r < s->ranks; r++) {
            bool mine = term->world.node_of_rank[r] == m->self;
            for (uint32_t i = 0; mine && i < s->rank_shard_count[r]; i++) {
                if (s->rank_shards[r][i] == shard && local_shard.storing_rank == NONE32) {
                    local_shard.storing_rank = local;
                }
            }
            local += mine;
        }
        local_shard.drains_here = p->drainer == m->self;
        local_shard.holder_count = p->source == m->self ? p->holder_count : 0;
        memcpy(local_shard.holders, p->holders, sizeof(local_shard.holders));
    }
    if (local_shard.held || local_shard.storing_rank != NONE32) {
        local_shard.world_shard = w;
    }
    return local_shard;
}

/* What the agent makes of a slot that it finds. */
static struct slot take_over(struct sim *s, const struct machine *m, uint32_t local, struct memory_slot *memory)
{
    struct slot slot = {.shard = local,
                        .state = slot_found(memory->state, memory->version, memory->seal, m->term->term),
                        .version = memory->version,
                        .root = memory->root,
                        .to_storage = memory->to_storage};
    check_found(s, (uint32_t)(m - s->machines), memory, slot.state);
    memory->sealed_ms = s->now;
    if (slot.state == SLOT_FREE) {
        memory->state = SLOT_FREE;
        memory->version = VERSION_NONE;
    }
    return slot;
}

/* Segments that are here or needed, as the node machine numbers them; and what their headers say. */
static void collect_slots(struct sim *s, struct machine *m, struct slot *slots)
{
    struct node_setup *setup = &m->node_setup;
    for (uint32_t shard = 0; shard < s->shards; shard++) {
        struct node_shard local_shard = duty_of(s, m, shard);
        struct segment *segment = &m->segments[shard];
        segment->exists |= local_shard.world_shard != NONE32;
        if (!segment->exists) {
            continue;
        }
        uint32_t local = setup->shard_count++;
        m->node_shards[local] = local_shard;
        m->shard_of_local[local] = shard;
        for (uint32_t i = 0; i < s->slots; i++) {
            struct memory_slot *memory = &segment->slots[i];
            slots[local * s->slots + i] = take_over(s, m, local, memory);
        }
    }
}

void agent_join(struct sim *s, uint32_t machine, const struct sim_term *term)
{
    struct machine *m = &s->machines[machine];
    struct slot slots[SIM_SHARDS * SIM_SLOTS];
    m->term = term;
    m->node_setup = (struct node_setup){.term = term->term,
                                        .self = m->self,
                                        .node_count = s->nodes,
                                        .layout = term->world.layout,
                                        .shards = m->node_shards,
                                        .version_timeout_ms = VERSION_TIMEOUT_MS,
                                        .retry_ms = RETRY_MS};
    for (uint32_t r = 0; r < s->ranks; r++) {
        m->node_setup.rank_count += term->world.node_of_rank[r] == m->self;
    }
    collect_slots(s, m, slots);
    m->node_memory = realloc(m->node_memory, node_memory(&m->node_setup));
    m->node = node_init(m->node_memory, &m->node_setup, slots, sim_clock(s, machine));
    if (m->self == 0) {
        m->coordinator_setup = (struct coordinator_setup){.term = term->term,
                                                          .node_count = s->nodes,
                                                          .layout = term->world.layout,
                                                          .version_timeout_ms = VERSION_TIMEOUT_MS,
                                                          .drain_pause_ms = DRAIN_PAUSE_MS,
                                                          .drain_pause_max_ms = DRAIN_PAUSE_MAX_MS,
                                                          .drains = term->drains};
        m->coordinator_memory = realloc(m->coordinator_memory, coordinator_memory(&m->coordinator_setup));
        m->coordinator =
            coordinator_init(m->coordinator_memory, &m->coordinator_setup, &m->kept, sim_clock(s, machine));
        m->kept = *coordinator_decision(m->coordinator);
    }
    if (m->kept.term == term->term) {
        agent_feed(s, machine, (struct event){.type = EVENT_DECISION, .term = term->term, .decision = m->kept});
    }
    save_release_slots(s, machine);
}

void agent_stop(struct sim *s, uint32_t machine)
{
    struct machine *m = &s->machines[machine];
    m->agent_up = m->repairing = false;
    m->agent++;
    m->node = NULL;
    m->coordinator = NULL;
    recovery_free(m->recovery);
    m->recovery = NULL;
    save_agent_stopped(s, machine);
    for (uint32_t shard = 0; shard < s->shards; shard++) {
        for (uint32_t i = 0; i < s->slots; i++) {
            struct memory_slot *memory = &m->segments[shard].slots[i];
            memory->readers = 0; /* digests and transfers end with the process; a trainer's copy does not */
            memory->writers = !version_none(memory->copied);
        }
    }
}

/* After a crash: the same term goes on, unless a newer one was adopted before. */
void agent_start(struct sim *s, uint32_t machine)
{
    struct machine *m = &s->machines[machine];
    m->agent_up = true;
    m->agent++;
    if (m->term != NULL && m->terms.joined == m->terms.adopted && m->terms.joined == m->term->term) {
        agent_join(s, machine, m->term);
        save_agent_started(s, machine);
        if (m->coordinator != NULL && !m->kept.based) {
            recover_begin(s, machine);
        }
    }
}
