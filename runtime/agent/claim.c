/* SPDX-License-Identifier: Apache-2.0
 * Claiming a term for a trainer: storage says to whom the terms before belong, the agents of those say whether their
 * trainers live, core/holder.h decides, and then one file is made, if nobody was faster. Storage may hang: only pool
 * threads wait for it. */
#include "agent/agent.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define AGAIN_MS  250 /* who has answered that its trainers live is asked again */
#define TIME_TEXT 32

enum phase { READING, READ_AGAIN, ASKING, CLAIMING };

/* An agent of the terms before. */
struct asked_agent {
    struct node_info node;
    bool self;
    uint64_t asked_ms; /* 0: not yet */
    bool answered;
    struct wire_holder answer; /* newest */
};

struct claim {
    struct claim *next;
    struct storage_op storage; /* while it is in the pool */
    struct agent *agent;
    uint64_t client; /* id */
    struct msg_claim wanted;
    struct holder_claim facts;
    struct wire_holder_ask ask;
    enum phase phase;
    bool in_pool;
    uint64_t asking_ms;
    struct holder_unnamed unnamed;
    struct term_holder own; /* what is written beside the claim */
    struct term_holders holders;
    uint32_t asked_count;
    struct asked_agent *asked;
    uint64_t term; /* claimed */
    tck_status_t status;
    struct error err;
};

/* ---- end ----------------------------------------------------------------------------------------------------- */

static void claim_free(struct claim *c)
{
    term_holders_free(&c->holders);
    term_holder_free(&c->own);
    free(c->asked);
    free(c->wanted.agents);
    free(c);
}

static void claim_unlink(struct claim *c)
{
    struct claim **at = &c->agent->claims;
    while (*at != c) {
        at = &(*at)->next;
    }
    *at = c->next;
}

void claims_free(struct agent *agent)
{
    while (agent->claims) {
        struct claim *c = agent->claims;
        agent->claims = c->next;
        claim_free(c);
    }
}

static void answer(struct client *client, const struct claim *c)
{
    if (c->status != TCK_OK) {
        client_error(client, MSG_ERROR, c->wanted.seq, &c->err);
        return;
    }
    struct msg_term m = {.seq = c->wanted.seq, .term = c->term};
    struct writer w = writer_new(0);
    client->claimed = c->term;
    msg_term_encode(&m, &w);
    client_send(client, MSG_TERM, &w);
    writer_free(&w);
}

static void finish(struct claim *c)
{
    struct client *client = client_by_id(c->agent, c->client);
    if (c->status == TCK_OK) {
        log_info("claimed term %" PRIu64, c->term);
    } else {
        log_error("a term could not be claimed: %s", c->err.text);
    }
    if (client) {
        answer(client, c);
    }
    claim_unlink(c);
    claim_free(c);
}

static void fail(struct claim *c, tck_status_t status)
{
    c->status = status;
    finish(c);
}

/* ---- who is in the way ----------------------------------------------------------------------------------------- */

static const char *time_text(uint64_t wall_ms, char out[TIME_TEXT])
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm tm;
    if (wall_ms == 0 || !gmtime_r(&seconds, &tm) || strftime(out, TIME_TEXT, "%Y-%m-%d %H:%M:%S UTC", &tm) == 0) {
        snprintf(out, TIME_TEXT, "an unknown time");
    }
    return out;
}

/* The oldest of these terms is the one in use. */
static const struct held_term *in_use(const struct claim *c)
{
    return c->holders.count > 0 ? &c->holders.terms[c->holders.count - 1] : NULL;
}

static tck_status_t held_error(struct claim *c)
{
    const struct asked_agent *a = c->asked;
    char since[TIME_TEXT];
    while (!a->answered || !a->answer.held) {
        a++;
    }
    const struct held_term *term = in_use(c);
    return error_set(
        &c->err, TCK_ERR_EXIST,
        "job %s is held by a start whose trainers are alive: rank %u of %u is pid %u on node %s, since %s. "
        "End it first; or, if this start is to take the job over, set \"takeover\" to \"on\"",
        c->agent->config.job, a->answer.rank, a->answer.world_size, a->answer.pid, a->node.name,
        time_text(term ? term->wall_ms : 0, since));
}

static tck_status_t superseded_error(struct claim *c)
{
    const struct held_term *newest = c->holders.count > 0 ? &c->holders.terms[0] : NULL;
    char since[TIME_TEXT];
    bool known = newest && newest->holder.node[0] != '\0';
    return error_set(&c->err, TCK_ERR_DENIED,
                     "term %" PRIu64 " of job %s is over: another start took the job over with term %" PRIu64
                     " (pid %u on node %s, %s)",
                     c->wanted.after, c->agent->config.job, c->holders.newest, known ? newest->holder.pid : 0,
                     known ? newest->holder.node : "unknown", time_text(newest ? newest->wall_ms : 0, since));
}

/* ---- claiming -------------------------------------------------------------------------------------------------- */

static void claim_work(void *ctx)
{
    struct claim *c = ctx;
    struct term_claim claim = {
        .at_least = c->wanted.at_least, .follows = true, .seen = c->holders.newest, .holder = &c->own};
    c->status = persistent_claim(c->agent->persistent, &claim, &c->term, &c->err);
    failpoint(term, claimed);
}

/* True: the agent is leaving, and the claim is gone. */
static bool was_canceled(struct claim *c, bool canceled)
{
    c->in_pool = false;
    if (canceled) {
        fail(c, error_set(&c->err, TCK_ERR_CANCELED, "the agent is leaving"));
    }
    return canceled;
}

/* Storage hangs. The term that it may still grant stays unused; what it reads or writes is the pool thread's. */
static void claim_give_up(void *ctx, const struct error *why)
{
    struct claim *c = ctx;
    struct client *client = client_by_id(c->agent, c->client);
    health_storage_failed(c->agent, 0, why);
    if (client) {
        client_error(client, MSG_ERROR, c->wanted.seq, why);
    }
    claim_unlink(c);
}

/* True: its client was told so, and the claim is gone. */
static bool was_given_up(struct claim *c)
{
    bool late = c->storage.late;
    storage_end(&c->storage);
    if (late) {
        claim_free(c);
    }
    return late;
}

static void claim_done(void *ctx, bool canceled)
{
    struct claim *c = ctx;
    if (was_given_up(c)) {
        return;
    }
    if (was_canceled(c, canceled)) {
        return;
    }
    if (c->status == TCK_ERR_EXIST) {
        c->phase = READ_AGAIN; /* another start has claimed a term, and may be in the way. Listings may be older than
                                  its claim: a pause keeps this from becoming a busy loop */
    } else {
        finish(c);
    }
}

static void submit(struct claim *c, enum phase phase, pool_work_fn *work, pool_done_fn *done)
{
    c->phase = phase;
    c->in_pool = true;
    if (pool_submit(c->agent->claiming, work, done, c) != TCK_OK) {
        c->in_pool = false;
        fail(c, error_set(&c->err, TCK_ERR_NOMEM, "no memory to claim a term"));
        return;
    }
    c->storage = (struct storage_op){
        .pool = c->agent->claiming, .what = "the claim of a term", .give_up = claim_give_up, .ctx = c};
    storage_begin(&c->storage, c->agent, NULL);
}

/* ---- asking ---------------------------------------------------------------------------------------------------- */

static struct peer *peer_of(const struct agent *agent, const struct node_info *node)
{
    for (size_t i = 0; i < peers_count(agent->peers); i++) {
        struct peer *peer = peers_at(agent->peers, i);
        if (peer_node(peer)->agent_id == node->agent_id) {
            return peer;
        }
    }
    return NULL;
}

/* A session that there is keeps its address: the one on storage may be older. */
static struct peer *session_with(struct agent *agent, const struct node_info *node)
{
    struct peer *peer = peer_of(agent, node);
    struct error err;
    if (!peer && peers_want(agent->peers, node, &peer, &err) != TCK_OK) {
        log_warn("node %s: %s", node->name, err.text);
        return NULL;
    }
    return peer;
}

static void send_ask(struct claim *c, struct asked_agent *a)
{
    struct peer *peer = session_with(c->agent, &a->node);
    if (!peer || !peer_is_up(peer)) {
        return;
    }
    struct writer w = writer_new(0);
    wire_holder_ask_encode(&c->ask, &w);
    if (!w.failed && peer_send(peer, WIRE_HOLDER_ASK, w.data, w.len) != TCK_OK) {
        log_debug("node %s could not be asked who holds the job", a->node.name);
    }
    writer_free(&w);
    a->asked_ms = clock_ms();
}

static void ask_agents(struct claim *c, const struct client *asker)
{
    for (uint32_t i = 0; i < c->asked_count; i++) {
        struct asked_agent *a = &c->asked[i];
        if (a->self) {
            a->answer = holders_look(c->agent, &c->ask, asker);
            a->answered = true;
        } else if ((!a->answered || a->answer.held) && (a->asked_ms == 0 || clock_ms() - a->asked_ms >= AGAIN_MS)) {
            send_ask(c, a);
        }
    }
}

static void count_answers(struct claim *c)
{
    c->facts.silent = c->facts.held = 0;
    for (uint32_t i = 0; i < c->asked_count; i++) {
        c->facts.silent += !c->asked[i].answered;
        c->facts.held += c->asked[i].answered && c->asked[i].answer.held;
    }
    c->facts.since_ms = clock_ms() - c->asking_ms;
}

static void judge(struct claim *c)
{
    count_answers(c);
    switch (holder_judge(&c->facts)) {
    case HOLDER_FREE:
        submit(c, CLAIMING, claim_work, claim_done);
        break;
    case HOLDER_WAIT:
        break;
    case HOLDER_HELD:
        fail(c, held_error(c));
        break;
    case HOLDER_SUPERSEDED:
        fail(c, superseded_error(c));
        break;
    }
}

/* There is another agent on that node now: the one of before is dead, and its trainers look for this one. */
static bool has_successor(const struct claim *c, const struct node_info *node)
{
    for (uint32_t i = 0; i < c->wanted.count; i++) {
        if (strcmp(c->wanted.agents[i].node, node->name) == 0) {
            return c->wanted.agents[i].agent_id != node->agent_id;
        }
    }
    return false;
}

static void add_asked(struct claim *c, const struct node_info *node, bool self)
{
    for (uint32_t i = 0; i < c->asked_count; i++) {
        if (c->asked[i].node.agent_id == node->agent_id) {
            return;
        }
    }
    c->asked[c->asked_count++] = (struct asked_agent){.node = *node, .self = self};
}

/* Trainers of one launcher have one run id. */
static bool is_of_run(const struct term_holder *holder, const char *run_id)
{
    return run_id[0] != '\0' && strcmp(holder->run_id, run_id) == 0;
}

static tck_status_t list_asked(struct claim *c)
{
    size_t most = 1;
    for (uint32_t i = 0; i < c->holders.count; i++) {
        most += c->holders.terms[i].holder.agent_count;
    }
    free(c->asked);
    c->asked_count = 0;
    c->asked = calloc(most, sizeof *c->asked);
    if (!c->asked) {
        return error_set(&c->err, TCK_ERR_NOMEM, "no memory to claim a term");
    }
    add_asked(c, peers_self(c->agent->peers), true);
    for (uint32_t i = 0; i < c->holders.count; i++) {
        const struct term_holder *holder = &c->holders.terms[i].holder;
        for (uint32_t n = 0; n < holder->agent_count && !is_of_run(holder, c->ask.run_id); n++) {
            if (!has_successor(c, &holder->agents[n])) {
                add_asked(c, &holder->agents[n], false);
            }
        }
    }
    return TCK_OK;
}

static void start_asking(struct claim *c, const struct client *client)
{
    const struct held_term *oldest = in_use(c), *newest = oldest ? &c->holders.terms[0] : NULL;
    c->phase = ASKING;
    c->asking_ms = c->asking_ms ? c->asking_ms : clock_ms();
    c->ask.term = oldest ? oldest->term : c->holders.newest;
    c->ask.asking = ++c->agent->last_asking;
    c->facts.newest = c->holders.newest;
    c->facts.newest_ours = newest && newest->term == c->holders.newest &&
                           strcmp(newest->holder.node, c->own.node) == 0 && newest->holder.pid == c->own.pid &&
                           c->own.pid != 0;
    if (list_asked(c) != TCK_OK) {
        fail(c, c->err.code);
        return;
    }
    ask_agents(c, client);
    judge(c);
}

void claim_heard(struct agent *agent, const struct peer *from, const void *data, size_t len)
{
    struct wire_holder m;
    if (wire_holder_decode(data, len, &m) != TCK_OK) {
        log_warn("malformed HOLDER of node %s", peer_node(from)->name);
        return;
    }
    for (struct claim *c = agent->claims, *next; c; c = next) {
        next = c->next;
        for (uint32_t i = 0; c->phase == ASKING && c->ask.asking == m.asking && i < c->asked_count; i++) {
            if (c->asked[i].node.agent_id == peer_node(from)->agent_id) {
                c->asked[i].answered = true;
                c->asked[i].answer = m;
                judge(c);
                break;
            }
        }
    }
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

static void read_work(void *ctx)
{
    struct claim *c = ctx;
    c->status = persistent_term_holders(c->agent->persistent, &c->holders, &c->err);
}

static bool may_be_written(struct claim *c)
{
    const struct held_term *newest = c->holders.count > 0 ? &c->holders.terms[0] : NULL;
    return newest && holder_may_be_written(&c->unnamed, newest->term, newest->holder.node[0] != '\0', clock_ms());
}

static void trainer_is_gone(struct claim *c)
{
    fail(c, error_set(&c->err, TCK_ERR_CANCELED, "the trainer that asked is gone"));
}

static void read_done(void *ctx, bool canceled)
{
    struct claim *c = ctx;
    if (was_given_up(c)) {
        return;
    }
    if (was_canceled(c, canceled)) {
        return;
    }
    const struct client *client = client_by_id(c->agent, c->client);
    if (c->status != TCK_OK) {
        finish(c);
    } else if (!client) {
        trainer_is_gone(c);
    } else if (may_be_written(c)) {
        c->phase = READ_AGAIN;
    } else {
        start_asking(c, client);
    }
}

static void start_reading(struct claim *c)
{
    term_holders_free(&c->holders);
    submit(c, READING, read_work, read_done);
}

/* ---- from outside -------------------------------------------------------------------------------------------- */

static void tick(struct claim *c)
{
    const struct client *client = client_by_id(c->agent, c->client);
    if (c->in_pool) {
        return;
    }
    if (!client) {
        trainer_is_gone(c);
    } else if (c->phase == READ_AGAIN) {
        start_reading(c);
    } else if (c->phase == ASKING) {
        ask_agents(c, client);
        judge(c);
    }
}

void claim_tick(struct agent *agent)
{
    for (struct claim *c = agent->claims, *next; c; c = next) {
        next = c->next;
        tick(c);
    }
}

/* Takes over m's agents. */
static struct claim *claim_new(const struct client *client, const struct msg_claim *m)
{
    struct agent *agent = client->agent;
    uint64_t adopted = state_get(agent->state)->term.adopted;
    struct claim *c = calloc(1, sizeof *c);
    struct node_info *self = c ? calloc(1, sizeof *self) : NULL;
    if (!self) {
        free(c);
        return NULL;
    }
    *c = (struct claim){.agent = agent, .client = client->id, .wanted = *m};
    c->wanted.at_least = m->at_least > adopted ? m->at_least : adopted + 1;
    c->facts = (struct holder_claim){.after = m->after, .takeover = client->takeover};
    *self = *peers_self(agent->peers);
    c->own = (struct term_holder){.pid = (uint32_t)client->process.pid, .agent_count = 1, .agents = self};
    memcpy(c->own.node, agent->config.node, sizeof c->own.node);
    memcpy(c->own.run_id, client->run_id, sizeof c->own.run_id);
    memcpy(c->ask.run_id, client->run_id, sizeof c->ask.run_id);
    return c;
}

void claim_asked(struct client *client, const uint8_t *payload, size_t len)
{
    struct agent *agent = client->agent;
    struct msg_claim m;
    if (msg_claim_decode(payload, len, &m) != TCK_OK) {
        client_cut(client, "malformed CLAIM_TERM");
        return;
    }
    struct claim *c = client->trainer ? claim_new(client, &m) : NULL;
    if (!c) {
        free(m.agents);
        client_cut(client, client->trainer ? "no memory to claim a term" : "CLAIM_TERM before HELLO");
        return;
    }
    c->next = agent->claims;
    agent->claims = c;
    start_reading(c);
}
