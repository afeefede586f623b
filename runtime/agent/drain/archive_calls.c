/* SPDX-License-Identifier: Apache-2.0
 * See archive_calls.h. */
#include "agent/drain/archive_calls.h"

#include "base/clock.h"
#include "base/pool.h"
#include "tiers/archive.h"

#include <stdlib.h>

struct archive_job {
    struct archive *archive;
    struct archive_ask ask;
    struct archive_answer answer;
    archive_call_done_fn *done;
    void *ctx;
    uint64_t since_ms;
    struct error outcome;
};

/* ---- in a pool thread -------------------------------------------------------------------------------------------- */

static void publish(struct archive_job *job)
{
    struct manifest manifest;
    job->outcome.code = archive_manifest(job->archive, job->ask.version, &manifest, &job->outcome);
    if (job->outcome.code == TCK_OK) {
        job->answer.newest = job->ask.version;
        job->answer.newest_wall_ms = manifest.wall_ms;
        job->outcome.code = archive_publish(job->archive, &manifest, job->ask.term, &job->outcome);
        manifest_free(&manifest);
    }
}

static void work(void *ctx)
{
    struct archive_job *job = ctx;
    struct archive_answer *answer = &job->answer;
    switch (job->ask.call) {
    case ARCHIVE_LOOK:
        job->outcome.code = archive_newest(job->archive, &answer->newest, &answer->newest_wall_ms, &job->outcome);
        break;
    case ARCHIVE_PREPARE:
        job->outcome.code = archive_sweep(job->archive, job->ask.term, job->ask.version, &job->outcome);
        break;
    case ARCHIVE_PUBLISH:
        publish(job);
        break;
    case ARCHIVE_NOTHING:
        break;
    }
}

/* ---- in the loop's thread ---------------------------------------------------------------------------------------- */

static enum archive_end end_of(tck_status_t code)
{
    switch ((int)code) {
    case TCK_OK:
        return ARCHIVE_DONE;
    case TCK_ERR_CANCELED:
        return ARCHIVE_CANCELED;
    case TCK_ERR_NOENT:
    case TCK_ERR_CORRUPT:
    case TCK_ERR_EXIST:
        return ARCHIVE_LACKS;
    default:
        return ARCHIVE_FAILED;
    }
}

static void ended(void *ctx, bool canceled)
{
    struct archive_job job = *(struct archive_job *)ctx;
    free(ctx);
    job.answer.end = canceled ? ARCHIVE_CANCELED : end_of(job.outcome.code);
    job.done(job.ctx, &job.ask, &job.answer, &job.outcome);
}

struct archive_job *archive_call_begin(struct archive *archive, struct pool *pool, const struct archive_ask *ask,
                                       archive_call_done_fn *done, void *ctx)
{
    struct archive_job *job = calloc(1, sizeof(*job));
    if (job == NULL) {
        return NULL;
    }
    *job = (struct archive_job){.archive = archive, .ask = *ask, .done = done, .ctx = ctx, .since_ms = clock_ms()};
    if (pool_submit(pool, work, ended, job) != TCK_OK) {
        free(job);
        return NULL;
    }
    return job;
}

uint64_t archive_call_since_ms(const struct archive_job *job)
{
    return job->since_ms;
}
