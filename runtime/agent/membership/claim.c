/* SPDX-License-Identifier: Apache-2.0
 * Claims a term for a trainer: reads from storage which starts own the newest terms, asks their agents whether
 * trainers are alive, and lets core/holder.h decide. The term is one that an agent has reserved, otherwise the next
 * free one on storage. If storage does not answer, the claim relies on what agents keep in memory: the world of the
 * last term, and the terms reserved for its successors. */
#include "agent/membership/claim.h"

#include "agent/ipc/ipc_server.h"
#include "agent/membership/claim_internal.h"
#include "agent/membership/connectivity.h"
#include "agent/membership/reservation.h"
#include "agent/state/adopt.h"
#include "agent/state/hard_state.h"
#include "base/clock.h"
#include "base/log.h"
#include "recovery/catalog.h"
#include "tiers/peer.h"
#include "tiers/persistent.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ASK_AGAIN_MS 250
#define OFFER_MS     250 /* for agents whose trainers belong to this run: they are only asked for a term */
#define TIME_TEXT    32

struct claims {
    struct claims_setup needs;
    struct claim *under_way;
    uint64_t last_asking; /* number of the newest request about holders */
};

/* ---- end ----------------------------------------------------------------------------------------------------- */

static void claim_free(struct claim *c)
{
    if (c->granted) {
        reservation_end_grant(c->needs->reservations, c->term);
    }
    claim_leave_call(c);
    term_holders_free(&c->holders);
    term_holder_free(&c->own);
    free(c->asked);
    free(c->wanted.agents);
    free(c);
}

static void claim_unlink(struct claim *c)
{
    struct claim **at = &c->all->under_way;
    while (*at != c) {
        at = &(*at)->next;
    }
    *at = c->next;
}

tck_status_t claims_new(const struct claims_setup *setup, struct claims **out, struct error *err)
{
    struct claims *claims = calloc(1, sizeof(*claims));
    if (claims == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    claims->needs = *setup;
    *out = claims;
    return TCK_OK;
}

void claims_free(struct claims *claims)
{
    while (claims != NULL && claims->under_way != NULL) {
        struct claim *c = claims->under_way;
        claims->under_way = c->next;
        claim_free(c);
    }
    free(claims);
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

static void claim_finish(struct claim *c)
{
    struct client *client = client_by_id(*c->needs->clients, c->client);
    if (c->status == TCK_OK) {
        log_info("claimed term %" PRIu64, c->term);
    } else {
        log_error("cannot claim a term: %s", c->err.text);
    }
    if (client != NULL) {
        answer(client, c);
    }
    claim_unlink(c);
    claim_free(c);
}

static void claim_fail(struct claim *c, tck_status_t status)
{
    c->status = status;
    claim_finish(c);
}

/* ---- conflicts ----------------------------------------------------------------------------------------- */

static const char *time_text(uint64_t wall_ms, char out[TIME_TEXT])
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm tm;
    if (wall_ms == 0 || gmtime_r(&seconds, &tm) == NULL ||
        strftime(out, TIME_TEXT, "%Y-%m-%d %H:%M:%S UTC", &tm) == 0) {
        snprintf(out, TIME_TEXT, "an unknown time");
    }
    return out;
}

static tck_status_t held_error(struct claim *c)
{
    const struct asked_agent *a = c->asked;
    char since[TIME_TEXT];
    while (!claim_is_held_by(c, a)) {
        a++;
    }
    const struct held_term *term = claim_in_use(c);
    return error_set(
        &c->err, TCK_ERR_EXIST,
        "job %s is held by a start whose trainers are alive: rank %u of %u is pid %u on node %s, since %s. "
        "End it first, or set \"takeover\" to \"on\" to let this start take the job over",
        c->needs->config->job, a->answer.rank, a->answer.world_size, a->answer.pid, a->node.name,
        time_text(term != NULL ? term->wall_ms : 0, since));
}

static tck_status_t second_agent_error(struct claim *c)
{
    const struct asked_agent *a = claim_second_agent(c);
    return error_set(
        &c->err, TCK_ERR_EXIST,
        "another agent of job %s runs on node %s, at %s, and its memory may have newer versions than storage: it has "
        "another runtime directory (`ps -C tierckptd -o args` shows it). Start with that one (runtime_dir, "
        "TIERCKPT_RUNTIME_DIR, XDG_RUNTIME_DIR), or end that agent",
        c->needs->config->job, a->node.name, a->node.address);
}

static tck_status_t superseded_error(struct claim *c)
{
    const struct held_term *newest = c->holders.count > 0 ? &c->holders.terms[0] : NULL;
    char since[TIME_TEXT];
    bool known = newest != NULL && newest->holder.node[0] != '\0';
    return error_set(&c->err, TCK_ERR_DENIED,
                     "term %" PRIu64 " of job %s is over: another start took the job over with term %" PRIu64
                     " (pid %u on node %s, %s)",
                     c->wanted.after, c->needs->config->job, c->facts.newest, known ? newest->holder.pid : 0,
                     known ? newest->holder.node : "unknown", time_text(newest != NULL ? newest->wall_ms : 0, since));
}

/* ---- writing ------------------------------------------------------------------------------------------------- */

/* The term is adopted after it has been written to storage, so that trainers of the previous term can read who claimed
 * it, and before its trainer gets the reply.
 */
static void take_term(struct claim *c)
{
    c->status = TCK_OK;
    adopt_term(c->needs->adopt, c->term);
    claim_finish(c);
}

/* Another start has claimed a higher term on storage, past the reservation. */
static void lose_grant(struct claim *c)
{
    reservation_end_grant(c->needs->reservations, c->term);
    c->granted = false;
    c->term = 0;
}

/* A granted term is accepted even if its owner cannot be written beside the claim now: metadata_note_world writes it
 * later. */
static void on_written(struct claim *c)
{
    if (c->granted && c->status == TCK_ERR_EXIST) {
        lose_grant(c);
    }
    if (c->granted && c->status != TCK_OK) {
        log_warn("the owner of term %" PRIu64 " could not be written to storage yet, trying again later: %s", c->term,
                 c->err.text);
    }
    if (c->granted) {
        take_term(c);
    } else if (c->status == TCK_ERR_EXIST) {
        c->phase = CLAIM_READ_AGAIN; /* another start has claimed a term, and may hold the job. There is a pause because
                                        a listing may not show its claim yet */
    } else {
        claim_finish(c);
    }
}

static tck_status_t no_term_error(struct claim *c)
{
    c->err = c->storage_err;
    return error_set(&c->err, c->storage_err.code,
                     "%s; without storage, none of the agents that answer can grant a term", c->storage_err.text);
}

static void write_or_give_up(struct claim *c)
{
    if (c->without_storage) {
        claim_fail(c, no_term_error(c));
    } else {
        claim_write(c);
    }
}

/* ---- granting ------------------------------------------------------------------------------------------------ */

static void on_granted(struct claim *c, const struct grant *grant)
{
    reservation_handle_grant(c->needs->reservations, grant, c->own.pid);
    c->term = grant->term;
    c->granted = true;
    if (c->without_storage) {
        log_warn("term %" PRIu64 " was granted by the agent of node %s without storage: %s", c->term,
                 c->asked[c->granter].node.name, c->storage_err.text);
        take_term(c);
    } else {
        claim_write(c);
    }
}

static struct reserve_ask grant_ask(const struct claim *c)
{
    return (struct reserve_ask){.to = peers_self(c->needs->peers)->agent_id,
                                .at_least = c->wanted.at_least,
                                .adopted = c->asked[c->granter].answer.adopted};
}

static void request_term(struct claim *c)
{
    struct reserve_ask ask = grant_ask(c);
    struct wire_term_ask m = {.at_least = ask.at_least, .asking = c->ask.asking, .adopted = ask.adopted};
    struct writer w = writer_new(0);
    wire_term_ask_encode(&m, &w);
    claim_send(c, &c->asked[c->granter], WIRE_TERM_ASK, &w);
    writer_free(&w);
    c->grant_asked_ms = clock_ms();
}

/* Another start was granted a term in the meantime, and may hold the job. */
static void on_not_granted(struct claim *c)
{
    c->phase = CLAIM_READ_AGAIN;
    c->again_ms = clock_ms() + ASK_AGAIN_MS;
}

static void start_granting(struct claim *c, uint32_t granter)
{
    c->granter = granter;
    c->granting_ms = clock_ms();
    c->phase = CLAIM_GRANTING;
    if (!c->asked[granter].self) {
        request_term(c);
        return;
    }
    struct reserve_ask ask = grant_ask(c);
    struct grant grant = reservation_grant(c->needs->reservations, &ask);
    if (grant.term != 0) {
        on_granted(c, &grant);
    } else {
        on_not_granted(c);
    }
}

static void granting_tick(struct claim *c)
{
    if (clock_ms() - c->granting_ms >= HOLDER_ANSWER_MS) {
        write_or_give_up(c);
    } else if (clock_ms() - c->grant_asked_ms >= ASK_AGAIN_MS) {
        request_term(c);
    }
}

void claim_handle_grant(struct claims *claims, const struct peer *from, const void *data, size_t len)
{
    struct wire_term_grant m;
    if (wire_term_grant_decode(data, len, &m) != TCK_OK) {
        log_warn("malformed TERM_GRANT from node %s", peer_node(from)->name);
        return;
    }
    for (struct claim *c = claims->under_way, *next; c != NULL; c = next) {
        next = c->next;
        if (c->phase != CLAIM_GRANTING || c->ask.asking != m.asking ||
            c->asked[c->granter].node.agent_id != peer_node(from)->agent_id) {
            continue;
        }
        struct reserve_terms terms = reservation_terms(claims->needs.reservations);
        if (m.term != 0 && reserve_may_take(&terms, m.term, c->wanted.at_least, c->own.pid)) {
            on_granted(c, &(struct grant){.term = m.term, .last = m.last, .follows = m.follows});
        } else {
            on_not_granted(c);
        }
    }
}

/* ---- deciding ------------------------------------------------------------------------------------------------ */

/* No trainer holds the job. Without storage, the term depends on the agents' answers. */
static void find_term(struct claim *c)
{
    uint32_t granter = claim_granter(c);
    uint64_t wait_ms = c->without_storage ? HOLDER_ANSWER_MS : c->others_offer ? OFFER_MS : 0;
    if (granter != UINT32_MAX) {
        start_granting(c, granter);
    } else if (!claim_all_answered(c) && c->facts.since_ms < wait_ms) {
        return;
    } else {
        write_or_give_up(c);
    }
}

/* True if the claimer already has the newest term: the reply may have been lost. */
static bool newest_is_ours(const struct claim *c)
{
    const struct held_term *newest = c->holders.count > 0 ? &c->holders.terms[0] : NULL;
    struct reserve_terms terms = reservation_terms(c->needs->reservations);
    bool noted = newest != NULL && newest->term == c->facts.newest && strcmp(newest->holder.node, c->own.node) == 0 &&
                 newest->holder.pid == c->own.pid;
    return reserve_claimed_by(&terms, c->facts.newest, c->own.pid) ||
           (noted && c->own.pid != 0 && c->facts.newest != 0);
}

static void judge(struct claim *c)
{
    claim_count_answers(c);
    c->facts.newest_ours = newest_is_ours(c);
    switch (holder_judge(&c->facts)) {
    case HOLDER_FREE:
        find_term(c);
        break;
    case HOLDER_WAIT:
        break;
    case HOLDER_HELD:
        claim_fail(c, held_error(c));
        break;
    case HOLDER_SECOND:
        claim_fail(c, second_agent_error(c));
        break;
    case HOLDER_SUPERSEDED:
        claim_fail(c, superseded_error(c));
        break;
    }
}

static void fail_canceled(struct claim *c)
{
    claim_fail(c, error_set(&c->err, TCK_ERR_CANCELED, "the trainer that made the request has disconnected"));
}

static void start_asking(struct claim *c)
{
    const struct client *client = client_by_id(*c->needs->clients, c->client);
    const struct held_term *oldest = claim_in_use(c);
    if (client == NULL) {
        fail_canceled(c);
        return;
    }
    c->phase = CLAIM_ASKING;
    c->asking_ms = c->asking_ms ? c->asking_ms : clock_ms();
    c->ask.term = oldest != NULL ? oldest->term : c->holders.newest;
    c->ask.asking = ++c->all->last_asking;
    c->facts.newest = c->holders.newest;
    if (claim_list_agents(c) != TCK_OK) {
        claim_fail(c, c->err.code);
        return;
    }
    claim_ask_agents(c, client);
    judge(c);
}

void claim_handle_holder(struct claims *claims, const struct peer *from, const void *data, size_t len)
{
    struct wire_holder m;
    if (wire_holder_decode(data, len, &m) != TCK_OK) {
        log_warn("malformed HOLDER from node %s", peer_node(from)->name);
        return;
    }
    for (struct claim *c = claims->under_way, *next; c != NULL; c = next) {
        next = c->next;
        for (uint32_t i = 0; c->phase == CLAIM_ASKING && c->ask.asking == m.asking && i < c->asked_count; i++) {
            if (c->asked[i].node.agent_id == peer_node(from)->agent_id) {
                c->asked[i].answered = true;
                c->asked[i].answer = m;
                judge(c);
                break;
            }
        }
    }
}

/* ---- earlier terms ----------------------------------------------------------------------------------------------- */

static bool may_be_written(struct claim *c)
{
    const struct held_term *newest = c->holders.count > 0 ? &c->holders.terms[0] : NULL;
    return newest != NULL &&
           holder_may_be_written(&c->unnamed, newest->term, newest->holder.node[0] != '\0', clock_ms());
}

static void on_read(struct claim *c)
{
    c->without_storage = false;
    if (may_be_written(c)) {
        c->phase = CLAIM_READ_AGAIN;
    } else {
        start_asking(c);
    }
}

static tck_status_t add_term_in_memory(struct claim *c, uint64_t term, const struct node_info *nodes, size_t count)
{
    struct held_term *held = &c->holders.terms[c->holders.count];
    held->holder.agents = calloc(count, sizeof(*nodes));
    if (held->holder.agents == NULL) {
        return error_set(&c->err, TCK_ERR_NOMEM, "out of memory: a term cannot be claimed");
    }
    memcpy(held->holder.agents, nodes, count * sizeof(*nodes));
    held->holder.agent_count = (uint32_t)count;
    held->holder.joined = true;
    held->term = term;
    c->holders.count++;
    return TCK_OK;
}

/* Collects what this agent knows about earlier terms, for when storage does not answer: the nodes of the last term that
 * had memory here, and those of a later term that trainers have joined. */
static tck_status_t holders_in_memory(struct claim *c)
{
    uint64_t joined;
    size_t count;
    const struct node_info *nodes = connectivity_nodes(c->needs->connectivity, &joined, &count);
    struct world world = {0};
    tck_status_t status = hard_state_last_world(c->needs->state, &world, &c->err);
    c->holders = (struct term_holders){.newest = hard_state_get(c->needs->state)->term.adopted,
                                       .terms = calloc(2, sizeof(*c->holders.terms))};
    if (c->holders.terms == NULL) {
        status = error_set(&c->err, TCK_ERR_NOMEM, "out of memory: a term cannot be claimed");
    }
    if (status == TCK_OK && joined > world.term && count > 0) {
        status = add_term_in_memory(c, joined, nodes, count);
    }
    if (status == TCK_OK) {
        status = add_term_in_memory(c, world.term, world.nodes, world.node_count);
    }
    world_free(&world);
    return status;
}

static void on_storage_unreadable(struct claim *c)
{
    c->without_storage = true;
    c->storage_err = c->err;
    term_holders_free(&c->holders);
    if (holders_in_memory(c) == TCK_OK) {
        start_asking(c);
    } else {
        c->err = c->storage_err;
        claim_fail(c, c->storage_err.code);
    }
}

/* ---- entry points -------------------------------------------------------------------------------------------- */

static void tick(struct claim *c)
{
    const struct client *client = client_by_id(*c->needs->clients, c->client);
    if (c->call != NULL) {
        return;
    }
    if (client == NULL) {
        fail_canceled(c);
    } else if (c->phase == CLAIM_READ_AGAIN && clock_ms() >= c->again_ms) {
        claim_read(c);
    } else if (c->phase == CLAIM_ASKING) {
        claim_ask_agents(c, client);
        judge(c);
    } else if (c->phase == CLAIM_GRANTING) {
        granting_tick(c);
    }
}

void claim_tick(struct claims *claims)
{
    for (struct claim *c = claims->under_way, *next; c != NULL; c = next) {
        next = c->next;
        tick(c);
    }
}

/* Takes ownership of m's agents. */
static const struct claim_steps steps = {
    .was_read = on_read, .storage_unreadable = on_storage_unreadable, .was_written = on_written, .fail = claim_fail};

/* Above what this agent has adopted, and above what the catalog knows to be committed: if save_dir was emptied or is
 * not mounted, its terms begin at 1 again, and this node's commits must still be those of earlier terms. */
static uint64_t lowest_term(const struct claims_setup *needs, uint64_t wanted)
{
    uint64_t known = hard_state_get(needs->state)->term.adopted;
    struct version newest = {0};
    struct error err;
    if (needs->catalog != NULL && catalog_newest_commit(needs->catalog, UINT64_MAX, &newest, &err) != TCK_OK) {
        log_warn("the catalog cannot be read, so the terms of this node's earlier commits are unknown: %s", err.text);
    }
    known = newest.term > known ? newest.term : known;
    return wanted > known ? wanted : known + 1;
}

static struct claim *claim_new(struct claims *claims, const struct client *client, const struct msg_claim *m)
{
    const struct claims_setup *needs = &claims->needs;
    struct claim *c = calloc(1, sizeof(*c));
    struct node_info *self = c != NULL ? calloc(1, sizeof(*self)) : NULL;
    if (self == NULL) {
        free(c);
        return NULL;
    }
    *c = (struct claim){.steps = &steps, .all = claims, .needs = needs, .client = client->id, .wanted = *m};
    c->wanted.at_least = lowest_term(needs, m->at_least);
    c->facts = (struct holder_claim){.after = m->after, .takeover = client->takeover};
    *self = *peers_self(needs->peers);
    c->own = (struct term_holder){.pid = (uint32_t)client->process.pid, .agent_count = 1, .agents = self};
    memcpy(c->own.node, needs->config->node, sizeof(c->own.node));
    memcpy(c->own.run_id, client->run_id, sizeof(c->own.run_id));
    memcpy(c->ask.run_id, client->run_id, sizeof(c->ask.run_id));
    c->ask.at_least = c->wanted.at_least;
    return c;
}

void claim_handle_request(struct claims *claims, struct client *client, const uint8_t *payload, size_t len)
{
    struct msg_claim m;
    if (msg_claim_decode(payload, len, &m) != TCK_OK) {
        client_cut(client, "malformed CLAIM_TERM");
        return;
    }
    struct claim *c = client->trainer ? claim_new(claims, client, &m) : NULL;
    if (c == NULL) {
        free(m.agents);
        client_cut(client, client->trainer ? "out of memory: a term cannot be claimed" : "CLAIM_TERM before HELLO");
        return;
    }
    c->next = claims->under_way;
    claims->under_way = c;
    claim_read(c);
}
