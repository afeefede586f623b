/* SPDX-License-Identifier: Apache-2.0
 * Chunks that several jobs share, with a pool that does its jobs when the test says so. */
#include "base/chunk_jobs.h"

#include "base/pool.h"

#include <criterion/criterion.h>

#define CHUNKS_MAX 100
#define JOBS_MAX   16

/* ---- the pool ---------------------------------------------------------------------------------------------------- */

static struct {
    pool_work_fn *work;
    pool_done_fn *done;
    void *ctx;
} queue[JOBS_MAX];
static uint32_t queued, taken; /* jobs submitted until the pool has no memory */
static tck_status_t refusal = TCK_OK;

tck_status_t __wrap_pool_submit(struct pool *pool, pool_work_fn *work, pool_done_fn *done, void *ctx);
tck_status_t __wrap_pool_submit(struct pool *pool, pool_work_fn *work, pool_done_fn *done, void *ctx)
{
    (void)pool;
    if (queued == taken) {
        return refusal;
    }
    queue[queued].work = work;
    queue[queued].done = done;
    queue[queued].ctx = ctx;
    queued++;
    return TCK_OK;
}

static void run(uint32_t job)
{
    queue[job].work(queue[job].ctx);
    queue[job].done(queue[job].ctx, false);
}

static void drop(uint32_t job)
{
    queue[job].done(queue[job].ctx, true);
}

/* ---- the chunks -------------------------------------------------------------------------------------------------- */

static struct chunk_jobs jobs;
static uint32_t begun[CHUNKS_MAX], begun_count, stops_at, ended, canceled_count;
static uint32_t runs_during; /* job that another thread runs while the first chunk is under way; 0: none */

static bool chunk(struct chunk_jobs *of, uint32_t i)
{
    cr_assert_eq(of, &jobs);
    cr_assert_eq(ended, 0);
    begun[i]++;
    begun_count++;
    if (i == 0 && runs_during > 0) {
        queue[runs_during].work(queue[runs_during].ctx);
    }
    return i != stops_at;
}

static void done(struct chunk_jobs *of, bool canceled)
{
    cr_assert_eq(of, &jobs);
    ended++;
    canceled_count += canceled;
}

static tck_status_t start(uint32_t threads, uint32_t count)
{
    jobs = (struct chunk_jobs){.threads = threads, .count = count, .chunk = chunk, .done = done};
    return chunk_jobs_start(&jobs);
}

static void set_up(void)
{
    taken = JOBS_MAX;
    refusal = TCK_ERR_NOMEM;
    stops_at = CHUNKS_MAX;
}

TestSuite(chunk_jobs, .init = set_up);

static void expect_each_once(uint32_t count)
{
    cr_expect_eq(begun_count, count);
    for (uint32_t i = 0; i < count; i++) {
        cr_expect_eq(begun[i], 1, "chunk %u", i);
    }
}

Test(chunk_jobs, have_a_job_for_each_thread)
{
    cr_assert_eq(start(4, 100), TCK_OK);
    cr_assert_eq(queued, 4);
    run(0);
    expect_each_once(100);
    run(1);
    run(2);
    cr_expect_eq(ended, 0, "a job may still use them");
    run(3);
    expect_each_once(100);
    cr_expect_eq(ended, 1);
    cr_expect_eq(canceled_count, 0);
}

Test(chunk_jobs, of_a_small_image_are_one_job)
{
    cr_assert_eq(start(16, 1), TCK_OK);
    cr_expect_eq(queued, 1);
    run(0);
    expect_each_once(1);
    cr_expect_eq(ended, 1);
}

Test(chunk_jobs, are_no_more_than_pay_for_their_threads)
{
    cr_assert_eq(start(16, 8), TCK_OK);
    cr_expect_eq(queued, 2);
}

Test(chunk_jobs, share_the_chunks)
{
    cr_assert_eq(start(2, 10), TCK_OK);
    runs_during = 1;
    queue[0].work(queue[0].ctx);
    expect_each_once(10);
    queue[1].done(queue[1].ctx, false);
    cr_expect_eq(ended, 0);
    queue[0].done(queue[0].ctx, false);
    cr_expect_eq(ended, 1);
    cr_expect_eq(canceled_count, 0);
}

Test(chunk_jobs, are_done_by_as_many_jobs_as_could_be_submitted)
{
    taken = 2;
    cr_assert_eq(start(4, 100), TCK_OK);
    cr_assert_eq(queued, 2);
    run(1);
    cr_expect_eq(ended, 0);
    run(0);
    expect_each_once(100);
    cr_expect_eq(ended, 1);
    cr_expect_eq(canceled_count, 0);
}

Test(chunk_jobs, are_not_begun_if_no_job_can_be_submitted)
{
    taken = 0;
    refusal = TCK_ERR_CANCELED;
    cr_expect_eq(start(4, 100), TCK_ERR_CANCELED);
    refusal = TCK_ERR_NOMEM;
    cr_expect_eq(start(4, 100), TCK_ERR_NOMEM);
    cr_expect_eq(begun_count, 0);
    cr_expect_eq(ended, 0);
}

Test(chunk_jobs, of_a_pool_that_ends_before_they_are_begun_are_canceled)
{
    cr_assert_eq(start(3, 100), TCK_OK);
    drop(0);
    drop(1);
    cr_expect_eq(ended, 0);
    drop(2);
    cr_expect_eq(ended, 1);
    cr_expect_eq(canceled_count, 1);
    cr_expect_eq(begun_count, 0);
}

Test(chunk_jobs, that_one_job_has_done_are_not_canceled_with_the_others)
{
    cr_assert_eq(start(3, 100), TCK_OK);
    run(0);
    drop(1);
    drop(2);
    expect_each_once(100);
    cr_expect_eq(ended, 1);
    cr_expect_eq(canceled_count, 0);
}

Test(chunk_jobs, end_where_one_says_so)
{
    stops_at = 5;
    cr_assert_eq(start(3, 100), TCK_OK);
    run(0);
    cr_expect_eq(begun_count, 6);
    run(1);
    drop(2);
    cr_expect_eq(begun_count, 6);
    cr_expect_eq(ended, 1);
    cr_expect_eq(canceled_count, 0);
}
