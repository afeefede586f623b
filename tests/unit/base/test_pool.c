/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pool.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

struct fixture {
    struct loop *loop;
    struct pool *pool;
    pthread_t loop_thread;
    pthread_t work_thread, done_thread;
    sem_t begun, go_on;
    int worked, done, canceled;
    atomic_int submitted;
    tck_status_t late_submit;
};

static void setup(struct fixture *f, int threads)
{
    struct error err;

    *f = (struct fixture){.loop_thread = pthread_self()};
    sem_init(&f->begun, 0, 0);
    sem_init(&f->go_on, 0, 0);
    cr_assert_eq(loop_new(&f->loop, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(pool_new(f->loop, threads, &f->pool, &err), TCK_OK, "%s", err.text);
}

static void teardown(struct fixture *f)
{
    pool_free(f->pool);
    loop_free(f->loop);
}

static void work(void *ctx)
{
    struct fixture *f = ctx;

    f->work_thread = pthread_self();
    f->worked++;
}

static void done(void *ctx, bool canceled)
{
    struct fixture *f = ctx;

    f->done_thread = pthread_self();
    f->done++;
    f->canceled += canceled;
    loop_stop(f->loop);
}

Test(pool, works_in_its_thread_and_is_done_in_the_loops)
{
    struct fixture f;

    setup(&f, 1);
    cr_assert_eq(pool_submit(f.pool, work, done, &f), TCK_OK);
    loop_run(f.loop);
    cr_assert_eq(f.worked, 1);
    cr_assert_eq(f.done, 1);
    cr_assert_eq(f.canceled, 0);
    cr_assert_not(pthread_equal(f.work_thread, f.loop_thread));
    cr_assert(pthread_equal(f.done_thread, f.loop_thread));
    teardown(&f);
}

/* Waits until the test lets it continue. */
static void work_slowly(void *ctx)
{
    struct fixture *f = ctx;

    sem_post(&f->begun);
    sem_wait(&f->go_on);
}

/* Occupies the only thread, so that further jobs cannot begin. */
static void block_thread(struct fixture *f)
{
    cr_assert_eq(pool_submit(f->pool, work_slowly, done, f), TCK_OK);
    sem_wait(&f->begun);
}

static void *release(void *arg)
{
    struct fixture *f = arg;

    sem_post(&f->go_on);
    return NULL;
}

Test(pool, free_waits_for_the_running_job)
{
    struct fixture f;
    pthread_t helper;

    setup(&f, 1);
    block_thread(&f);
    cr_assert_eq(pthread_create(&helper, NULL, release, &f), 0);
    pool_free(f.pool);
    cr_assert_eq(f.done, 1);
    cr_assert_eq(f.canceled, 0);
    pthread_join(helper, NULL);
    loop_free(f.loop);
}

/* Holds the only thread, submitting jobs that cannot begin, until the pool no longer takes any: it is being freed. */
static void submit_until_freed(void *ctx)
{
    struct fixture *f = ctx;

    while (pool_submit(f->pool, work, done, f) == TCK_OK) {
        f->submitted++;
        usleep(1000);
    }
}

static void ignore_done(void *ctx, bool canceled)
{
    (void)ctx;
    (void)canceled;
}

Test(pool, free_cancels_jobs_not_begun)
{
    struct fixture f;

    setup(&f, 1);
    cr_assert_eq(pool_submit(f.pool, submit_until_freed, ignore_done, &f), TCK_OK);
    while (f.submitted == 0) {
        usleep(1000);
    }
    pool_free(f.pool);
    cr_assert_eq(f.worked, 0);
    cr_assert_eq(f.done, f.submitted);
    cr_assert_eq(f.canceled, f.submitted);
    loop_free(f.loop);
}

static void submit_when_done(void *ctx, bool canceled)
{
    struct fixture *f = ctx;

    f->canceled += canceled;
    f->late_submit = pool_submit(f->pool, work, done, f);
}

Test(pool, takes_no_job_while_it_is_freed)
{
    struct fixture f;

    setup(&f, 1);
    block_thread(&f);
    sem_post(&f.go_on);
    cr_assert_eq(pool_submit(f.pool, work, submit_when_done, &f), TCK_OK);
    pool_free(f.pool);
    cr_assert_eq(f.late_submit, TCK_ERR_CANCELED);
    loop_free(f.loop);
}

static void submit_again(void *ctx, bool canceled)
{
    struct fixture *f = ctx;

    cr_assert_not(canceled);
    cr_assert_eq(pool_submit(f->pool, work, done, f), TCK_OK);
}

Test(pool, done_function_may_submit)
{
    struct fixture f;

    setup(&f, 2);
    cr_assert_eq(pool_submit(f.pool, work, submit_again, &f), TCK_OK);
    loop_run(f.loop);
    cr_assert_eq(f.worked, 2);
    teardown(&f);
}

Test(pool, threads_work_at_the_same_time)
{
    struct fixture f;

    setup(&f, 2);
    cr_assert_eq(pool_submit(f.pool, work_slowly, done, &f), TCK_OK);
    cr_assert_eq(pool_submit(f.pool, work_slowly, done, &f), TCK_OK);
    sem_wait(&f.begun);
    sem_wait(&f.begun); /* the second has begun while the first still waits */
    sem_post(&f.go_on);
    sem_post(&f.go_on);
    teardown(&f);
    cr_assert_eq(f.done, 2);
}

static void hang(void *ctx)
{
    struct fixture *f = ctx;

    sem_post(&f->begun);
    sem_wait(&f->go_on);
}

static void hung(void *ctx, bool canceled)
{
    (void)ctx;
    (void)canceled;
}

Test(pool, goes_on_with_another_thread_while_one_hangs)
{
    struct fixture f;

    setup(&f, 1);
    cr_assert_eq(pool_submit(f.pool, hang, hung, &f), TCK_OK);
    sem_wait(&f.begun);
    cr_assert_eq(pool_submit(f.pool, work, done, &f), TCK_OK);
    cr_assert(pool_grow(f.pool));
    loop_run(f.loop);
    cr_assert_eq(f.worked, 1);
    sem_post(&f.go_on);
    teardown(&f);
}

Test(pool, does_not_grow_without_end)
{
    struct fixture f;
    int grown = 0;

    setup(&f, 1);
    while (grown < 1000 && pool_grow(f.pool)) {
        grown++;
    }
    cr_assert_gt(grown, 0);
    cr_assert_lt(grown, 100);
    teardown(&f);
}

Test(pool, refuses_to_have_no_threads)
{
    struct fixture f;
    struct pool *none = NULL;
    struct error err;

    setup(&f, 1);
    cr_assert_eq(pool_new(f.loop, 0, &none, &err), TCK_ERR_INVAL);
    cr_assert_null(none);
    teardown(&f);
}
