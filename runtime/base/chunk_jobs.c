/* SPDX-License-Identifier: Apache-2.0
 * One job for each thread, which ends when no chunk is left. */
#include "base/chunk_jobs.h"

#include "base/pool.h"

/* At least so many: their work takes about two milliseconds, beside which waking a thread costs little. */
#define CHUNKS_PER_JOB 4u

static void work(void *ctx)
{
    struct chunk_jobs *jobs = ctx;
    uint32_t i;
    while (!atomic_load(&jobs->stopped) && (i = atomic_fetch_add(&jobs->next, 1)) < jobs->count) {
        if (!jobs->chunk(jobs, i)) {
            atomic_store(&jobs->stopped, true);
        }
    }
}

/* A job that was dropped does not matter if another one has found no chunk left: then all of them are done. */
static void worked(void *ctx, bool dropped)
{
    struct chunk_jobs *jobs = ctx;
    (void)dropped;
    if (--jobs->under_way == 0) {
        jobs->done(jobs, !atomic_load(&jobs->stopped) && atomic_load(&jobs->next) < jobs->count);
    }
}

static uint32_t jobs_for(const struct chunk_jobs *jobs)
{
    uint32_t useful = (jobs->count + CHUNKS_PER_JOB - 1) / CHUNKS_PER_JOB;
    uint32_t most = useful < jobs->threads ? useful : jobs->threads;
    return most > 0 ? most : 1; /* without one, done would not be called */
}

/* If only some of the jobs can be submitted, they do all the work. */
tck_status_t chunk_jobs_start(struct chunk_jobs *jobs)
{
    uint32_t wanted = jobs_for(jobs);
    tck_status_t status = TCK_OK;
    while (jobs->under_way < wanted && status == TCK_OK) {
        status = pool_submit(jobs->pool, work, worked, jobs);
        jobs->under_way += status == TCK_OK;
    }
    return jobs->under_way > 0 ? TCK_OK : status;
}
