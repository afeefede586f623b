/* SPDX-License-Identifier: Apache-2.0
 * Checks a slot against its digests: all threads of the pool take chunks from one counter. */
#include "agent/replication/check.h"

#include "agent/driver/slot_ops.h"
#include "base/digest.h"
#include "base/pool.h"
#include "tiers/segment.h"

#include <stdatomic.h>
#include <stdlib.h>

struct check {
    struct check_setup needs;
    struct segment *segment;
    uint32_t slot, chunk_count;
    check_done_fn *done;
    void *ctx;
    _Atomic uint32_t next_chunk;
    atomic_bool failed; /* the thread that sets it writes the outcome */
    struct error outcome;
    uint32_t jobs; /* only the loop's thread counts them */
};

static void fail(struct check *c, const struct error *why)
{
    if (!atomic_exchange(&c->failed, true)) {
        c->outcome = *why;
    }
}

static void check_work(void *ctx)
{
    struct check *c = ctx;
    struct error err;
    uint32_t i;
    while (!atomic_load(&c->failed) && (i = atomic_fetch_add(&c->next_chunk, 1)) < c->chunk_count) {
        if (segment_verify_chunk(c->segment, c->slot, i, &err) != TCK_OK) {
            fail(c, &err);
        }
    }
}

static void check_end(struct check *c)
{
    struct slot_ops *ops = c->needs.slot_ops;
    c->done(c->ctx, &c->outcome);
    free(c);
    slot_op_end(ops);
}

static void check_worked(void *ctx, bool canceled)
{
    struct check *c = ctx;
    struct error err;
    if (canceled) {
        (void)error_set(&err, TCK_ERR_CANCELED, "the agent is exiting");
        fail(c, &err);
    }
    if (--c->jobs == 0) {
        check_end(c);
    }
}

static void check_start(struct check *c)
{
    uint32_t wanted = c->needs.threads;
    wanted = wanted < c->chunk_count ? wanted : c->chunk_count;
    while (c->jobs < wanted && pool_submit(c->needs.pool, check_work, check_worked, c) == TCK_OK) {
        c->jobs++;
    }
    if (c->jobs == 0) {
        (void)error_set(&c->outcome, TCK_ERR_NOMEM, "out of memory");
        check_end(c);
    }
}

void check_slot(const struct check_setup *setup, struct segment *segment, uint32_t slot, check_done_fn *done, void *ctx)
{
    struct error err;
    struct check *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        (void)error_set(&err, TCK_ERR_NOMEM, "out of memory");
        done(ctx, &err);
        return;
    }
    *c = (struct check){.needs = *setup,
                        .segment = segment,
                        .slot = slot,
                        .chunk_count = chunk_count(segment_info(segment).image_bytes),
                        .done = done,
                        .ctx = ctx};
    slot_op_begin(setup->slot_ops);
    c->outcome.code = segment_verify_root(segment, slot, &c->outcome);
    if (c->outcome.code == TCK_OK) {
        check_start(c);
    } else {
        check_end(c);
    }
}
