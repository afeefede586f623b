/* SPDX-License-Identifier: Apache-2.0
 * Work that may hang, and what waits for it. */
#include "base/bounded.h"

#include "base/clock.h"
#include "base/progress.h"

#include <criterion/criterion.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define LIMIT_MS 100

struct job {
    uint32_t moves; /* each takes half of the limit */
    sem_t *until, *dropped;
};

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = LIMIT_MS / 2 * 1000000L}, NULL);
}

static void work(void *ctx)
{
    struct job *job = ctx;
    for (uint32_t i = 0; i < job->moves; i++) {
        nap();
        progress_moved();
    }
    if (job->until != NULL) {
        sem_wait(job->until);
    }
}

static void drop(void *ctx)
{
    struct job *job = ctx;
    sem_post(job->dropped);
    free(job);
}

static struct bounded_work work_of(uint32_t moves, sem_t *until, sem_t *dropped)
{
    struct job *job = malloc(sizeof(*job));
    cr_assert_not_null(job);
    *job = (struct job){.moves = moves, .until = until, .dropped = dropped};
    return (struct bounded_work){.work = work, .drop = drop, .job = job};
}

Test(bounded, work_that_hangs_is_abandoned_and_dropped_once_it_ends, .timeout = 200)
{
    static sem_t until, dropped;
    struct error err;
    sem_init(&until, 0, 0);
    sem_init(&dropped, 0, 0);
    struct bounded_work hangs = work_of(0, &until, &dropped);
    cr_assert_eq(bounded_do(&hangs, LIMIT_MS, &err), TCK_ERR_TIMEDOUT);
    cr_assert_eq(sem_trywait(&dropped), -1, "the work still uses it");
    sem_post(&until);
    sem_wait(&dropped);
}

/* A look at an archive is such work: the listing that waits for it must not count as hanging. */
Test(bounded, its_progress_is_that_of_the_work_that_waits_for_it, .timeout = 200)
{
    struct error err;
    struct progress outer = {0};
    uint64_t since_ms = 0;
    progress_begin(&outer);
    uint64_t began_ms = clock_ms();
    struct bounded_work long_work = work_of(6, NULL, NULL);
    cr_assert_eq(bounded_do(&long_work, 10 * LIMIT_MS, &err), TCK_OK);
    free(long_work.job);
    cr_assert(progress_in_call(&outer, &since_ms));
    cr_assert_gt(since_ms, began_ms, "nothing has moved since the work began");
    progress_end(&outer);
}
