/* SPDX-License-Identifier: Apache-2.0
 * Terms for the successors of this one (core/reserve.h): the coordinator's agent reserves them while storage answers,
 * grants them, and gives back what is left when the job is done. */
#include "agent/membership/reservation.h"

#include "agent/state/adopt.h"
#include "agent/storage/storage_ops.h"
#include "base/clock.h"

#include <inttypes.h>
#include <stdlib.h>

#define AGAIN_MS 1000  /* after a try */
#define NONE_MS  10000 /* after a try that reserved nothing */

struct reserving {
    struct storage_op storage;
    struct agent *agent;
    struct term_reserve wanted; /* by 0: they are released */
    uint64_t first, last;
    tck_status_t status;
    struct error err;
};

/* ---- what is kept -------------------------------------------------------------------------------------------- */

void reservation_publish(struct agent *agent)
{
    const struct reserve *r = &hard_state_get(agent->state)->reserve;
    persistent_set_reserved(agent->persistent, r->first, r->last);
}

static void keep(struct agent *agent, const struct reserve *reserve)
{
    struct kept kept = *hard_state_get(agent->state);
    kept.reserve = *reserve;
    hard_state_put(agent->state, &kept);
    reservation_publish(agent);
}

struct reserve_terms reservation_terms(const struct agent *agent)
{
    const struct kept *kept = hard_state_get(agent->state);
    return (struct reserve_terms){.adopted = kept->term.adopted,
                                  .joined = kept->term.joined,
                                  .committed = hard_state_watermark(agent->state).term,
                                  .claimed = kept->claimed,
                                  .claimed_pid = kept->claimed_pid,
                                  .granting = agent->granting};
}

void reservation_load(struct agent *agent)
{
    const struct kept *kept = hard_state_get(agent->state);
    if (kept->save_dir == hard_state_save_dir(&agent->config)) {
        reservation_publish(agent);
    } else if (kept->reserve.first != 0 || kept->reserve.given.term != 0) {
        keep(agent, &(struct reserve){0}); /* another save_dir */
    }
}

/* ---- granting ------------------------------------------------------------------------------------------------ */

struct grant reservation_grant(struct agent *agent, const struct reserve_ask *ask)
{
    const struct kept *kept = hard_state_get(agent->state);
    struct reserve reserve = kept->reserve;
    struct reserve_terms terms = reservation_terms(agent);
    struct grant grant = reserve_give(&reserve, &terms, ask);
    if (grant.term == 0) {
        return grant;
    }
    keep(agent, &reserve);
    if (grant.to == kept->agent_id) {
        agent->granting = grant.term;
    } else {
        adopt_term(agent, grant.term);
    }
    failpoint(term, granted);
    return grant;
}

void reservation_handle_grant(struct agent *agent, const struct grant *grant, uint32_t pid)
{
    struct kept kept = *hard_state_get(agent->state);
    reserve_take(&kept.reserve, grant);
    agent->granting = grant->term;
    kept.claimed = grant->term;
    kept.claimed_pid = pid;
    hard_state_put(agent->state, &kept);
    reservation_publish(agent);
    failpoint(term, taken);
}

uint64_t reservation_unused(const struct agent *agent, uint64_t term)
{
    struct reserve_terms terms = reservation_terms(agent);
    return reserve_unused(&hard_state_get(agent->state)->reserve, &terms, term);
}

void reservation_handle_ask(struct agent *agent, struct peer *peer, const void *data, size_t len)
{
    struct wire_term_ask m;
    if (wire_term_ask_decode(data, len, &m) != TCK_OK) {
        log_warn("malformed TERM_ASK of node %s", peer_node(peer)->name);
        return;
    }
    struct reserve_ask ask = {.to = peer_node(peer)->agent_id, .at_least = m.at_least, .adopted = m.adopted};
    struct grant grant = reservation_grant(agent, &ask);
    struct wire_term_grant answer = {
        .term = grant.term, .asking = m.asking, .last = grant.last, .follows = grant.follows};
    struct writer w = writer_new(0);
    wire_term_grant_encode(&answer, &w);
    if (!w.failed && peer_send(peer, WIRE_TERM_GRANT, w.data, w.len) != TCK_OK) {
        log_debug("the grant could not be sent to node %s: it will ask again", peer_node(peer)->name);
    }
    writer_free(&w);
}

/* ---- reserving ----------------------------------------------------------------------------------------------- */

static void work(void *ctx)
{
    struct reserving *r = ctx;
    struct persistent *p = r->agent->persistent;
    progress_begin(&r->storage.progress);
    r->status = r->wanted.by != 0 ? persistent_reserve(p, &r->wanted, &r->first, &r->last, &r->err)
                                  : persistent_unreserve(p, r->wanted.first, r->wanted.last, &r->err);
    progress_end(&r->storage.progress);
}

static void log_outcome(struct reserving *r)
{
    struct agent *agent = r->agent;
    if (r->status == TCK_OK) {
        return;
    }
    if (r->wanted.by == 0) {
        log_info("the reserved terms could not be released; they stay unused: %s", r->err.text);
    } else if (agent->reserve_failed != r->wanted.by) {
        agent->reserve_failed = r->wanted.by;
        log_warn("cannot reserve terms, so a restart during an outage of storage will fail: %s", r->err.text);
    }
}

static void add_reserved(struct agent *agent, const struct reserving *r)
{
    struct reserve reserve = hard_state_get(agent->state)->reserve;
    struct reserve_terms terms = reservation_terms(agent);
    if (reserve_may_add(&reserve, &terms, r->wanted.by, r->first)) {
        reserve_add(&reserve, r->first, r->last);
        keep(agent, &reserve);
    }
}

/* A late result counts, too: the files exist, and no other agent takes these terms. */
static void done(void *ctx, bool canceled)
{
    struct reserving *r = ctx;
    struct agent *agent = r->agent;
    storage_end(&r->storage);
    agent->reserving = false;
    agent->reserve_again_ms = clock_ms() + (r->first != 0 || r->wanted.by == 0 ? AGAIN_MS : NONE_MS);
    if (r->status == TCK_ERR_UNSUPPORTED) {
        agent->reserve_again_ms = UINT64_MAX;
    }
    if (!canceled) {
        log_outcome(r);
    }
    if (!canceled && r->wanted.by != 0 && r->first != 0) {
        add_reserved(agent, r);
    }
    free(r);
}

static void start(struct agent *agent, const struct term_reserve *wanted)
{
    struct reserving *r = calloc(1, sizeof(*r));
    if (!r) {
        return;
    }
    *r = (struct reserving){.agent = agent, .wanted = *wanted};
    r->storage = (struct storage_op){.what = "the reserving of terms", .ctx = r};
    storage_begin(&r->storage, agent, NULL);
    agent->reserving = true;
    if (pool_submit(agent->io, work, done, r) != TCK_OK) {
        agent->reserving = false;
        storage_end(&r->storage);
        free(r);
    }
}

void reservation_tick(struct term_context *tc)
{
    struct agent *agent = tc->agent;
    const struct kept *kept = hard_state_get(agent->state);
    struct term_reserve wanted = {.by = tc->world.term, .follows = kept->reserve.first != 0};
    struct error ignored;
    if (!tc->coordinator || tc->end_noted || agent->reserving || clock_ms() < agent->reserve_again_ms ||
        !reserve_missing(&kept->reserve, tc->world.term, &wanted.first, &wanted.last) ||
        storage_hangs(agent, NULL, &ignored)) {
        return;
    }
    start(agent, &wanted);
}

/* Forgets the reservation first, so that none of its terms is granted any more. */
void reservation_release(struct term_context *tc)
{
    struct agent *agent = tc->agent;
    struct reserve reserve = hard_state_get(agent->state)->reserve;
    struct term_reserve back = {.first = reserve.first, .last = reserve.last};
    if (!tc->coordinator || reserve.first == 0) {
        return;
    }
    keep(agent, &(struct reserve){.given = reserve.given});
    start(agent, &back);
}
