/* SPDX-License-Identifier: Apache-2.0
 * A second start of the job by another launcher: it asks the agents of the newest term whether trainers are alive, and
 * core/holder.c decides whether it may claim a term. */
#include "core/holder.h"
#include "sim.h"
#include <inttypes.h>
#include <string.h>

#define ASK_MS 50

static bool answers(const struct sim *s, const struct sim_term *term, uint32_t node)
{
    uint32_t machine = term->machine_of_node[node];
    const struct machine *m = &s->machines[machine];
    bool same = m->alive && m->agent_up && m->life == term->life_of_node[node];
    return same && m->stopped_until <= s->now && m->group == s->machines[s->second.machine].group;
}

/* Until its term trains, a trainer waits for its restore. */
static bool holds(const struct sim *s, const struct sim_term *term, uint32_t node)
{
    for (uint32_t r = 0; r < s->ranks; r++) {
        bool alive = term->trainers[r].alive || !term->training;
        struct holder_trainer trainer = {.term = term->term, .alive = alive};
        if (term->world.node_of_rank[r] == node && holder_counts(&trainer, s->claimed)) {
            return true;
        }
    }
    return false;
}

static void ask(struct sim *s)
{
    for (uint32_t node = 0; node < s->nodes; node++) {
        if (!s->second.answered[node] || s->second.held[node]) {
            sim_after(s, sim_between(s, 2, ASK_MS - 10), TASK_SECOND_ASK, NONE32)->rank = node;
        }
    }
    sim_after(s, ASK_MS, TASK_SECOND_JUDGE, NONE32);
}

void second_start(struct sim *s)
{
    uint32_t machine = s->seats[sim_random(s, s->nodes)];
    const struct machine *m = &s->machines[machine];
    if (s->second.term > 0 || s->claimed == 0 || s->form_pending || !m->alive || !m->agent_up) {
        return;
    }
    s->second = (struct second_start){.term = s->claimed, .machine = machine, .began_ms = s->now};
    sim_log(s, "the job is started a second time, on m%u", machine);
    s->totals.faults++;
    ask(s);
}

/* The launcher of the first start has begun a term meanwhile, or no more faults are to come. */
static bool is_over(const struct sim *s)
{
    return s->second.term != s->claimed || s->calm;
}

void second_ask(struct sim *s, const struct task *t)
{
    const struct sim_term *term = sim_newest_term(s);
    if (!is_over(s) && answers(s, term, t->rank)) {
        s->second.answered[t->rank] = true;
        s->second.held[t->rank] = holds(s, term, t->rank);
    }
}

/* It claims a term: no trainer that could be asked is alive. */
static void check_claim(struct sim *s)
{
    const struct sim_term *term = sim_newest_term(s);
    for (uint32_t r = 0; r < s->ranks; r++) {
        uint32_t node = term->world.node_of_rank[r];
        bool alive = term->trainers[r].alive || !term->training;
        bool asked = s->second.answered[node] || s->now < s->second.began_ms + HOLDER_ANSWER_MS;
        if (alive && asked && s->machines[term->machine_of_node[node]].life == term->life_of_node[node]) {
            sim_fail(s, "second start: it takes the job from trainer %u, which is alive on m%u", r,
                     term->machine_of_node[node]);
        }
    }
}

void second_judge(struct sim *s)
{
    struct holder_claim claim = {.newest = s->claimed, .since_ms = s->now - s->second.began_ms};
    if (is_over(s)) {
        s->second.term = 0;
        return;
    }
    for (uint32_t node = 0; node < s->nodes; node++) {
        claim.silent += !s->second.answered[node];
        claim.held += s->second.held[node];
    }
    enum holder_verdict verdict = holder_judge(&claim);
    if (verdict == HOLDER_WAIT) {
        ask(s);
        return;
    }
    sim_log(s, "the second start is %s", verdict == HOLDER_FREE ? "free to claim a term" : "refused");
    s->second.term = 0;
    if (verdict == HOLDER_FREE) {
        check_claim(s);
        recover_form_soon(s);
    }
}

void second_return(struct sim *s, uint32_t machine)
{
    const struct machine *m = &s->machines[machine];
    if (m->term == NULL || m->term->term >= s->claimed) {
        return;
    }
    struct holder_claim claim = {.after = m->term->term, .newest = s->claimed};
    if (holder_judge(&claim) != HOLDER_SUPERSEDED) {
        sim_fail(s, "second start: trainers of term %" PRIu64 " on m%u take the job back from term %" PRIu64,
                 m->term->term, machine, s->claimed);
    }
}
