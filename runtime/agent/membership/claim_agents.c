/* SPDX-License-Identifier: Apache-2.0
 * The agents of earlier terms, which a claim asks whether their trainers are alive and which terms they have
 * reserved. */
#include "agent/membership/claim_internal.h"
#include "agent/membership/job_holders.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/reserve.h"
#include "tiers/peer.h"

#include <stdlib.h>
#include <string.h>

const struct held_term *claim_in_use(const struct claim *c)
{
    return c->holders.count > 0 ? &c->holders.terms[c->holders.count - 1] : NULL;
}

#define ASK_AGAIN_MS 250 /* before an agent with live trainers is asked again */

/* An existing session keeps its address, because the one on storage may be older. */
static struct peer *session_with(struct peers *peers, const struct node_info *node)
{
    struct peer *peer = peers_find(peers, node->agent_id);
    struct error err;
    if (peer == NULL && peers_want(peers, node, &peer, &err) != TCK_OK) {
        log_warn("node %s: %s", node->name, err.text);
        return NULL;
    }
    return peer;
}

bool claim_send(const struct claim *c, const struct asked_agent *to, uint16_t type, const struct writer *w)
{
    struct peer *peer = session_with(c->needs->peers, &to->node);
    if (peer == NULL || !peer_is_up(peer)) {
        return false;
    }
    if (w->failed || peer_send(peer, type, w->data, w->len) != TCK_OK) {
        log_debug("node %s could not be asked about the job", to->node.name);
    }
    return true;
}

static void send_ask(const struct claim *c, struct asked_agent *a)
{
    struct writer w = writer_new(0);
    wire_holder_ask_encode(&c->ask, &w);
    if (claim_send(c, a, WIRE_HOLDER_ASK, &w)) {
        a->asked_ms = clock_ms();
    }
    writer_free(&w);
}

void claim_ask_agents(struct claim *c, const struct client *asker)
{
    for (uint32_t i = 0; i < c->asked_count; i++) {
        struct asked_agent *a = &c->asked[i];
        if (a->self) {
            a->answer = holders_find(c->needs->holders, &c->ask, a->node.agent_id, asker);
            a->answered = true;
        } else if ((!a->answered || a->answer.held) && (a->asked_ms == 0 || clock_ms() - a->asked_ms >= ASK_AGAIN_MS)) {
            send_ask(c, a);
        }
    }
}

bool claim_is_held_by(const struct claim *c, const struct asked_agent *a)
{
    bool may_come_back = a->answer.pid == 0;
    return a->answered && a->answer.held && !a->for_term && !(c->same_run && may_come_back);
}

/* Where another agent runs now, nothing listens at the address of the one before, if that is dead. */
static bool is_known_dead(const struct claim *c, const struct asked_agent *a)
{
    const struct peer *peer = a->replaced ? peers_find(c->needs->peers, a->node.agent_id) : NULL;
    return peer != NULL && !peer_is_up(peer) && peer_trouble(peer)[0] != '\0';
}

const struct asked_agent *claim_second_agent(const struct claim *c)
{
    for (uint32_t i = 0; i < c->asked_count; i++) {
        if (c->asked[i].replaced && c->asked[i].answered) {
            return &c->asked[i];
        }
    }
    return NULL;
}

/* The answers also count for the newest term: only agents know of a term that was granted without storage. */
void claim_count_answers(struct claim *c)
{
    c->facts.silent = c->facts.held = 0;
    for (uint32_t i = 0; i < c->asked_count; i++) {
        const struct asked_agent *a = &c->asked[i];
        c->facts.silent += !a->answered && !a->for_term && !is_known_dead(c, a);
        c->facts.held += claim_is_held_by(c, a);
        if (a->answered && a->answer.adopted > c->facts.newest) {
            c->facts.newest = a->answer.adopted;
        }
    }
    c->facts.second = claim_second_agent(c) != NULL;
    c->facts.since_ms = clock_ms() - c->asking_ms;
}

bool claim_all_answered(const struct claim *c)
{
    for (uint32_t i = 0; i < c->asked_count; i++) {
        if (!c->asked[i].answered) {
            return false;
        }
    }
    return true;
}

uint32_t claim_granter(const struct claim *c)
{
    struct reserve_answer *answers = calloc(c->asked_count + 1, sizeof(*answers));
    uint32_t count = 0, chosen = UINT32_MAX;
    for (uint32_t i = 0; answers != NULL && i < c->asked_count; i++) {
        const struct wire_holder *said = &c->asked[i].answer; /* zeroed: it has not answered */
        answers[count++] = (struct reserve_answer){.adopted = said->adopted, .offer = said->offer};
    }
    if (answers != NULL) {
        chosen = reserve_choose(answers, count, c->holders.newest);
    }
    free(answers);
    return chosen;
}

/* ---- the agents -------------------------------------------------------------------------------------------------- */

/* True if another agent runs on that node now. */
static bool has_successor(const struct claim *c, const struct node_info *node)
{
    for (uint32_t i = 0; i < c->wanted.count; i++) {
        if (strcmp(c->wanted.agents[i].node, node->name) == 0) {
            return c->wanted.agents[i].agent_id != node->agent_id;
        }
    }
    return false;
}

static void add_asked(struct claim *c, const struct node_info *node, bool for_term)
{
    uint64_t self = peers_self(c->needs->peers)->agent_id;
    for (uint32_t i = 0; i < c->asked_count; i++) {
        if (c->asked[i].node.agent_id == node->agent_id) {
            return;
        }
    }
    c->asked[c->asked_count++] = (struct asked_agent){
        .node = *node, .self = node->agent_id == self, .for_term = for_term, .replaced = has_successor(c, node)};
    c->others_offer = c->others_offer || for_term;
}

/* All trainers of a launch share a run id. */
static bool is_of_run(const struct term_holder *holder, const char *run_id)
{
    return run_id[0] != '\0' && strcmp(holder->run_id, run_id) == 0;
}

/* For a term of this run, only the coordinator's agent (the first one) is asked, because it may have reserved terms. */
static void add_holder(struct claim *c, const struct term_holder *holder)
{
    bool same = is_of_run(holder, c->ask.run_id);
    for (uint32_t n = 0; n < holder->agent_count && (n == 0 || !same); n++) {
        add_asked(c, &holder->agents[n], same);
    }
}

tck_status_t claim_list_agents(struct claim *c)
{
    size_t most = 1;
    for (uint32_t i = 0; i < c->holders.count; i++) {
        most += c->holders.terms[i].holder.agent_count;
    }
    free(c->asked);
    c->asked_count = 0;
    c->others_offer = false;
    c->same_run = c->holders.count > 0 && is_of_run(&claim_in_use(c)->holder, c->ask.run_id);
    c->asked = calloc(most, sizeof(*c->asked));
    if (c->asked == NULL) {
        return error_set(&c->err, TCK_ERR_NOMEM, "out of memory: a term cannot be claimed");
    }
    add_asked(c, peers_self(c->needs->peers), false);
    for (uint32_t i = 0; i < c->holders.count; i++) {
        add_holder(c, &c->holders.terms[i].holder);
    }
    return TCK_OK;
}
