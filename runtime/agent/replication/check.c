/* SPDX-License-Identifier: Apache-2.0
 * Checks a slot against its digests: all threads of the pool take chunks from one counter. */
#include "agent/replication/check.h"

#include "agent/driver/slot_ops.h"
#include "base/chunk_jobs.h"
#include "base/digest.h"
#include "tiers/segment.h"

#include <stdlib.h>

struct check {
    struct chunk_jobs jobs; /* the first member: check_chunk, checked */
    struct slot_ops *slot_ops;
    struct segment *segment;
    uint32_t slot;
    check_done_fn *done;
    void *ctx;
    atomic_bool failed; /* the thread that sets it writes the outcome */
    struct error outcome;
};

static bool check_chunk(struct chunk_jobs *jobs, uint32_t i)
{
    struct check *c = (struct check *)jobs;
    struct error err;
    if (segment_verify_chunk(c->segment, c->slot, i, &err) == TCK_OK) {
        return true;
    }
    if (!atomic_exchange(&c->failed, true)) {
        c->outcome = err;
    }
    return false;
}

static void check_end(struct check *c)
{
    struct slot_ops *ops = c->slot_ops;
    c->done(c->ctx, &c->outcome);
    free(c);
    slot_op_end(ops);
}

static void checked(struct chunk_jobs *jobs, bool canceled)
{
    struct check *c = (struct check *)jobs;
    if (canceled) {
        (void)error_set(&c->outcome, TCK_ERR_CANCELED, "the agent is exiting");
    }
    check_end(c);
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
    *c = (struct check){.jobs = {.pool = setup->pool,
                                 .threads = setup->threads,
                                 .count = chunk_count(segment_info(segment).image_bytes),
                                 .chunk = check_chunk,
                                 .done = checked},
                        .slot_ops = setup->slot_ops,
                        .segment = segment,
                        .slot = slot,
                        .done = done,
                        .ctx = ctx};
    slot_op_begin(setup->slot_ops);
    c->outcome.code = segment_verify_root(segment, slot, &c->outcome);
    if (c->outcome.code == TCK_OK && chunk_jobs_start(&c->jobs) == TCK_OK) {
        return;
    }
    if (c->outcome.code == TCK_OK) {
        (void)error_set(&c->outcome, TCK_ERR_NOMEM, "out of memory");
    }
    check_end(c);
}
