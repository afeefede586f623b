/* SPDX-License-Identifier: Apache-2.0
 * Checks of slots, with a segment whose damage the test chooses and a pool that does its jobs when the test says so. */
#include "agent/replication/check.h"

#include "agent/driver/slot_ops.h"
#include "base/digest.h"
#include "base/pool.h"
#include "tiers/segment.h"

#include <criterion/criterion.h>

#define CHUNKS   40
#define THREADS  3
#define NO_CHUNK UINT32_MAX

static pool_work_fn *job_work;
static pool_done_fn *job_done;
static void *job;
static uint32_t jobs, jobs_max = THREADS;

static bool root_damaged;
static uint32_t damaged = NO_CHUNK, checked_chunks;

static int ops, ops_at_end;
static uint32_t ends;
static struct error outcome;

/* ---- what check.c needs of the rest of the agent ----------------------------------------------------------------- */

tck_status_t __wrap_pool_submit(struct pool *pool, pool_work_fn *work, pool_done_fn *done, void *ctx);
tck_status_t __wrap_pool_submit(struct pool *pool, pool_work_fn *work, pool_done_fn *done, void *ctx)
{
    (void)pool;
    if (jobs == jobs_max) {
        return TCK_ERR_NOMEM;
    }
    job_work = work;
    job_done = done;
    job = ctx;
    jobs++;
    return TCK_OK;
}

struct segment_info segment_info(const struct segment *segment)
{
    (void)segment;
    return (struct segment_info){.image_bytes = (uint64_t)CHUNKS * CHUNK_BYTES};
}

tck_status_t segment_verify_root(struct segment *segment, uint32_t slot, struct error *err)
{
    (void)segment, (void)slot;
    return root_damaged ? error_set(err, TCK_ERR_CORRUPT, "another root") : TCK_OK;
}

tck_status_t segment_verify_chunk(struct segment *segment, uint32_t slot, uint32_t i, struct error *err)
{
    (void)segment, (void)slot;
    checked_chunks++;
    return i == damaged ? error_set(err, TCK_ERR_CORRUPT, "chunk %u", i) : TCK_OK;
}

void slot_op_begin(struct slot_ops *slot_ops)
{
    (void)slot_ops;
    ops++;
}

void slot_op_end(struct slot_ops *slot_ops)
{
    (void)slot_ops;
    ops--;
}

/* ---- the checks -------------------------------------------------------------------------------------------------- */

static void done(void *ctx, const struct error *how)
{
    cr_assert_eq(ctx, &outcome);
    ends++;
    outcome = *how;
    ops_at_end = ops;
}

static void check(void)
{
    const struct check_setup setup = {.threads = THREADS};
    check_slot(&setup, NULL, 0, done, &outcome);
}

static void expect_end(tck_status_t code)
{
    cr_expect_eq(ends, 1);
    cr_expect_eq(outcome.code, code, "%s", outcome.text);
    cr_expect_eq(ops_at_end, 1, "the memory is in use until then");
    cr_expect_eq(ops, 0);
}

/* The first `worked` jobs work, the others are dropped as their pool ends. */
static void end_jobs(uint32_t worked)
{
    for (uint32_t i = 0; i < worked; i++) {
        job_work(job);
    }
    for (uint32_t i = 0; i < jobs; i++) {
        cr_assert_eq(ends, 0, "it ends with its last job");
        job_done(job, i >= worked);
    }
}

Test(check, compares_every_chunk_once)
{
    check();
    cr_assert_eq(jobs, THREADS);
    end_jobs(THREADS);
    cr_expect_eq(checked_chunks, CHUNKS);
    expect_end(TCK_OK);
}

Test(check, ends_at_a_damaged_chunk_and_says_which)
{
    damaged = 7;
    check();
    end_jobs(THREADS);
    cr_expect_eq(checked_chunks, 8);
    cr_expect_str_eq(outcome.text, "chunk 7");
    expect_end(TCK_ERR_CORRUPT);
}

Test(check, of_another_root_looks_at_no_chunk)
{
    root_damaged = true;
    check();
    cr_expect_eq(jobs, 0);
    expect_end(TCK_ERR_CORRUPT);
}

Test(check, is_canceled_if_the_agent_exits_before_it_has_begun)
{
    check();
    end_jobs(0);
    cr_expect_eq(checked_chunks, 0);
    expect_end(TCK_ERR_CANCELED);
}

Test(check, that_is_complete_counts_although_the_agent_exits)
{
    check();
    end_jobs(1);
    cr_expect_eq(checked_chunks, CHUNKS);
    expect_end(TCK_OK);
}

Test(check, fails_without_memory_for_its_jobs)
{
    jobs_max = 0;
    check();
    expect_end(TCK_ERR_NOMEM);
}
