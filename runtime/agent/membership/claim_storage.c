/* SPDX-License-Identifier: Apache-2.0
 * The reads and writes of a claim on storage. Storage may hang, so each call has a struct of its own: a call that is
 * given up stays with its pool thread, and the claim continues or ends without it. */
#include "agent/membership/claim_internal.h"
#include "agent/storage/health.h"
#include "agent/storage/metadata_writer.h"
#include "agent/storage/storage_ops.h"
#include "base/failpoint.h"
#include "tiers/persistent.h"

#include <stdlib.h>

struct claim_call {
    struct storage_op storage;
    struct claim *claim; /* NULL: it ended before the call */
    const struct claims_setup *needs;
    struct term_claim wanted;
    uint64_t granted;       /* term; 0: claim one */
    struct term_holder own; /* the claim's, while it is written */
    struct term_holders holders;
    uint64_t term;
    tck_status_t status;
    struct error err;
};

static void call_free(struct claim_call *call)
{
    term_holders_free(&call->holders);
    term_holder_free(&call->own);
    free(call);
}

/* Moves the results of the call into its claim. */
static struct claim *take_results(struct claim_call *call)
{
    struct claim *c = call->claim;
    c->call = NULL;
    c->status = call->status;
    c->err = call->err;
    if (call->own.agents != NULL) {
        c->own = call->own;
        call->own = (struct term_holder){0};
    }
    return c;
}

/* Frees the call. NULL: its claim has ended, or the agent is exiting. */
static struct claim *end_call(struct claim_call *call, bool canceled)
{
    storage_end(&call->storage);
    struct claim *c = call->claim != NULL ? take_results(call) : NULL;
    if (c != NULL && canceled) {
        c->steps->fail(c, error_set(&c->err, TCK_ERR_CANCELED, "the agent is exiting"));
        c = NULL;
    }
    if (c == NULL) {
        call_free(call);
    }
    return c;
}

void claim_leave_call(struct claim *c)
{
    if (c->call != NULL) {
        c->call->claim = NULL;
        c->call = NULL;
    }
}

static void submit(struct claim *c, struct claim_call *call, pool_work_fn *work, pool_done_fn *done,
                   void (*give_up)(void *ctx, const struct error *why))
{
    call->claim = c;
    call->needs = c->needs;
    call->storage =
        (struct storage_op){.pool = c->needs->claiming, .what = "the claim of a term", .give_up = give_up, .ctx = call};
    storage_begin(&call->storage, c->needs->storage_ops, NULL);
    c->call = call;
    if (pool_submit(c->needs->claiming, work, done, call) != TCK_OK) {
        c->call = NULL;
        storage_end(&call->storage);
        call_free(call);
        c->steps->fail(c, error_set(&c->err, TCK_ERR_NOMEM, "out of memory: a term cannot be claimed"));
    }
}

static struct claim_call *call_new(struct claim *c)
{
    struct claim_call *call = calloc(1, sizeof(*call));
    if (call == NULL) {
        c->steps->fail(c, error_set(&c->err, TCK_ERR_NOMEM, "out of memory: a term cannot be claimed"));
    }
    return call;
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

static void read_work(void *ctx)
{
    struct claim_call *call = ctx;
    progress_begin(&call->storage.progress);
    call->status = persistent_term_holders(call->needs->persistent, &call->holders, &call->err);
    progress_end(&call->storage.progress);
}

static void read_done(void *ctx, bool canceled)
{
    struct claim_call *call = ctx;
    struct claim *c = end_call(call, canceled);
    if (c == NULL) {
        return;
    }
    c->holders = call->holders;
    call->holders = (struct term_holders){0};
    call_free(call);
    if (c->status == TCK_OK) {
        c->steps->was_read(c);
    } else {
        c->steps->storage_unreadable(c);
    }
}

static void read_given_up(void *ctx, const struct error *why)
{
    struct claim *c = ((struct claim_call *)ctx)->claim;
    if (c != NULL) {
        claim_leave_call(c);
        health_storage_failed(c->needs->health, 0, why);
        c->err = *why;
        c->steps->storage_unreadable(c);
    }
}

void claim_read(struct claim *c)
{
    struct claim_call *call = call_new(c);
    if (call != NULL) {
        c->phase = CLAIM_READING;
        term_holders_free(&c->holders);
        submit(c, call, read_work, read_done, read_given_up);
    }
}

/* ---- writing ------------------------------------------------------------------------------------------------- */

static void write_work(void *ctx)
{
    struct claim_call *call = ctx;
    struct persistent *p = call->needs->persistent;
    progress_begin(&call->storage.progress);
    if (call->granted != 0) {
        call->term = call->granted;
        call->status = persistent_claim_reserved(p, call->granted, &call->own, &call->err);
    } else {
        call->wanted.holder = &call->own;
        call->status = persistent_claim(p, &call->wanted, &call->term, &call->err);
    }
    progress_end(&call->storage.progress);
    failpoint(term, claimed);
}

static void write_done(void *ctx, bool canceled)
{
    struct claim_call *call = ctx;
    if (call->claim == NULL && call->granted != 0) { /* it may have overwritten newer notes of the term */
        metadata_repeat_notes(call->needs->metadata);
    }
    struct claim *c = end_call(call, canceled);
    if (c == NULL) {
        return;
    }
    c->term = call->term;
    call_free(call);
    c->steps->was_written(c);
}

/* If the hanging call still claims a term, that term stays unused. */
static void write_given_up(void *ctx, const struct error *why)
{
    struct claim *c = ((struct claim_call *)ctx)->claim;
    if (c != NULL) {
        claim_leave_call(c);
        health_storage_failed(c->needs->health, 0, why);
        c->err = *why;
        c->status = why->code;
        c->steps->was_written(c);
    }
}

void claim_write(struct claim *c)
{
    struct claim_call *call = call_new(c);
    if (call != NULL) {
        c->phase = CLAIM_WRITING;
        call->granted = c->term;
        call->wanted = (struct term_claim){.at_least = c->wanted.at_least, .follows = true, .seen = c->holders.seen};
        call->own = c->own;
        c->own.agents = NULL;
        c->own.agent_count = 0;
        submit(c, call, write_work, write_done, write_given_up);
    }
}
