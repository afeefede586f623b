/* SPDX-License-Identifier: Apache-2.0
 * Terms for the successors of this one (core/reserve.h): the coordinator's agent reserves them while storage answers,
 * grants them, and releases those that are left when the job is done. */
#include "agent/membership/reservation.h"

#include "agent/driver/term.h"
#include "agent/state/adopt.h"
#include "agent/state/hard_state.h"
#include "agent/storage/storage_ops.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "tiers/peer.h"
#include "tiers/persistent.h"

#include <stdlib.h>

#define RETRY_MS       1000  /* after an attempt */
#define RETRY_EMPTY_MS 10000 /* after an attempt that reserved nothing */

struct reservations {
    struct reservations_setup needs;
    bool reserving;    /* terms are being reserved or released */
    uint64_t granting; /* term that a claim here was granted; while it is above the adopted term, no other is granted */
    uint64_t next_try_ms; /* earliest time of the next attempt */
    uint64_t failed;      /* term for which a failure was logged */
};

struct reserving {
    struct storage_op storage;
    struct reservations *rs;
    struct term_reserve wanted; /* by 0: release them */
    uint64_t first, last;
    tck_status_t status;
    struct error err;
};

/* ---- kept state -------------------------------------------------------------------------------------------------- */

void reservation_publish(struct reservations *rs)
{
    const struct reserve *r = &hard_state_get(rs->needs.state)->reserve;
    persistent_set_reserved(rs->needs.persistent, r->first, r->last);
}

static void keep(struct reservations *rs, const struct reserve *reserve)
{
    struct kept kept = *hard_state_get(rs->needs.state);
    kept.reserve = *reserve;
    hard_state_put(rs->needs.state, &kept);
    reservation_publish(rs);
}

struct reserve_terms reservation_terms(const struct reservations *rs)
{
    const struct kept *kept = hard_state_get(rs->needs.state);
    return (struct reserve_terms){.adopted = kept->term.adopted,
                                  .joined = kept->term.joined,
                                  .committed = hard_state_watermark(rs->needs.state).term,
                                  .claimed = kept->claimed,
                                  .claimed_pid = kept->claimed_pid,
                                  .granting = rs->granting};
}

void reservation_load(struct reservations *rs)
{
    const struct kept *kept = hard_state_get(rs->needs.state);
    if (kept->save_dir == hard_state_save_dir(rs->needs.config)) {
        reservation_publish(rs);
    } else if (kept->reserve.first != 0 || kept->reserve.given.term != 0) {
        keep(rs, &(struct reserve){0}); /* another save_dir */
    }
}

/* ---- granting ------------------------------------------------------------------------------------------------ */

struct grant reservation_grant(struct reservations *rs, const struct reserve_ask *ask)
{
    const struct kept *kept = hard_state_get(rs->needs.state);
    struct reserve reserve = kept->reserve;
    struct reserve_terms terms = reservation_terms(rs);
    struct grant grant = reserve_give(&reserve, &terms, ask);
    if (grant.term == 0) {
        return grant;
    }
    keep(rs, &reserve);
    if (grant.to == kept->agent_id) {
        rs->granting = grant.term;
    } else {
        adopt_term(rs->needs.adopt, grant.term);
    }
    failpoint(term, granted);
    return grant;
}

void reservation_handle_grant(struct reservations *rs, const struct grant *grant, uint32_t pid)
{
    struct kept kept = *hard_state_get(rs->needs.state);
    reserve_take(&kept.reserve, grant);
    rs->granting = grant->term;
    kept.claimed = grant->term;
    kept.claimed_pid = pid;
    hard_state_put(rs->needs.state, &kept);
    reservation_publish(rs);
    failpoint(term, taken);
}

void reservation_end_grant(struct reservations *rs, uint64_t term)
{
    if (rs->granting == term) {
        rs->granting = 0;
    }
}

uint64_t reservation_unused(const struct reservations *rs, uint64_t term)
{
    struct reserve_terms terms = reservation_terms(rs);
    return reserve_unused(&hard_state_get(rs->needs.state)->reserve, &terms, term);
}

void reservation_handle_ask(struct reservations *rs, struct peer *peer, const void *data, size_t len)
{
    struct wire_term_ask m;
    if (wire_term_ask_decode(data, len, &m) != TCK_OK) {
        log_warn("malformed TERM_ASK from node %s", peer_node(peer)->name);
        return;
    }
    struct reserve_ask ask = {.to = peer_node(peer)->agent_id, .at_least = m.at_least, .adopted = m.adopted};
    struct grant grant = reservation_grant(rs, &ask);
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
    struct persistent *p = r->rs->needs.persistent;
    progress_begin(&r->storage.progress);
    r->status = r->wanted.by != 0 ? persistent_reserve(p, &r->wanted, &r->first, &r->last, &r->err)
                                  : persistent_unreserve(p, r->wanted.first, r->wanted.last, &r->err);
    progress_end(&r->storage.progress);
}

static void log_outcome(const struct reserving *r)
{
    struct reservations *rs = r->rs;
    if (r->status == TCK_OK) {
        return;
    }
    if (r->wanted.by == 0) {
        log_info("the reserved terms could not be released and stay unused: %s", r->err.text);
    } else if (rs->failed != r->wanted.by) {
        rs->failed = r->wanted.by;
        log_warn("cannot reserve terms, so a restart during an outage of storage will fail: %s", r->err.text);
    }
}

static void add_reserved(const struct reserving *r)
{
    struct reserve reserve = hard_state_get(r->rs->needs.state)->reserve;
    struct reserve_terms terms = reservation_terms(r->rs);
    if (reserve_may_add(&reserve, &terms, r->wanted.by, r->first)) {
        reserve_add(&reserve, r->first, r->last);
        keep(r->rs, &reserve);
    }
}

/* A late result also counts: the files exist, and no other agent takes these terms. */
static void done(void *ctx, bool canceled)
{
    struct reserving *r = ctx;
    struct reservations *rs = r->rs;
    storage_end(&r->storage);
    rs->reserving = false;
    rs->next_try_ms = clock_ms() + (r->first != 0 || r->wanted.by == 0 ? RETRY_MS : RETRY_EMPTY_MS);
    if (r->status == TCK_ERR_UNSUPPORTED) {
        rs->next_try_ms = UINT64_MAX;
    }
    if (!canceled) {
        log_outcome(r);
    }
    if (!canceled && r->wanted.by != 0 && r->first != 0) {
        add_reserved(r);
    }
    free(r);
}

static void start(struct reservations *rs, const struct term_reserve *wanted)
{
    struct reserving *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return;
    }
    *r = (struct reserving){.rs = rs, .wanted = *wanted};
    r->storage = (struct storage_op){.what = "the reservation of terms", .ctx = r};
    storage_begin(&r->storage, rs->needs.storage_ops, NULL);
    rs->reserving = true;
    if (pool_submit(rs->needs.io, work, done, r) != TCK_OK) {
        rs->reserving = false;
        storage_end(&r->storage);
        free(r);
    }
}

void reservation_tick(struct reservations *rs, const struct term_context *tc)
{
    const struct kept *kept = hard_state_get(rs->needs.state);
    struct term_reserve wanted = {.by = tc->world.term, .follows = kept->reserve.first != 0};
    struct error ignored;
    if (tc->coordinator == NULL || tc->end_noted || rs->reserving || clock_ms() < rs->next_try_ms ||
        !reserve_missing(&kept->reserve, tc->world.term, &wanted.first, &wanted.last) ||
        storage_hangs(rs->needs.storage_ops, NULL, &ignored)) {
        return;
    }
    start(rs, &wanted);
}

/* Removes the reservation from the state first, so that none of its terms can still be granted. */
void reservation_release(struct reservations *rs, const struct term_context *tc)
{
    struct reserve reserve = hard_state_get(rs->needs.state)->reserve;
    struct term_reserve back = {.first = reserve.first, .last = reserve.last};
    if (tc->coordinator == NULL || reserve.first == 0) {
        return;
    }
    keep(rs, &(struct reserve){.given = reserve.given});
    start(rs, &back);
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

tck_status_t reservations_new(const struct reservations_setup *setup, struct reservations **out, struct error *err)
{
    struct reservations *rs = calloc(1, sizeof(*rs));
    if (rs == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    rs->needs = *setup;
    *out = rs;
    return TCK_OK;
}

void reservations_free(struct reservations *rs)
{
    free(rs);
}
