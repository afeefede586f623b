/* SPDX-License-Identifier: Apache-2.0
 * Several threads post to one loop while its pool works: nothing may be lost, duplicated or out of order. A plain
 * program, because it is meant for ThreadSanitizer, under which Criterion does not run. */
#include "base/loop.h"
#include "base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define POSTERS      4
#define POSTS_EACH   2000
#define JOBS         2000
#define POOL_THREADS 3

/* Ends the program: after a failed check, threads still use the loop. */
static void check(bool ok, const char *claim)
{
    if (!ok) {
        fprintf(stderr, "failed: %s\n", claim);
        exit(1);
    }
}

struct stress {
    struct loop *loop;
    struct pool *pool;
    int posts_seen, jobs_done; /* loop's thread */
    atomic_int jobs_worked;
};

struct poster {
    struct stress *stress;
    pthread_t thread;
    int expected; /* loop's thread */
};

struct numbered_post {
    struct poster *poster;
    int number;
};

struct job {
    struct stress *stress;
    int worked; /* not atomic: the pool must order work before done */
};

static void stop_when_complete(struct stress *stress)
{
    if (stress->posts_seen == POSTERS * POSTS_EACH && stress->jobs_done == JOBS) {
        loop_stop(stress->loop);
    }
}

static void on_post(void *ctx)
{
    struct numbered_post *post = ctx;
    struct stress *stress = post->poster->stress;

    check(post->number == post->poster->expected, "posts of one thread keep their order");
    post->poster->expected++;
    stress->posts_seen++;
    free(post);
    stop_when_complete(stress);
}

static void *run_poster(void *arg)
{
    struct poster *poster = arg;

    for (int i = 0; i < POSTS_EACH; i++) {
        struct numbered_post *post = malloc(sizeof(*post));

        check(post != NULL, "malloc");
        *post = (struct numbered_post){.poster = poster, .number = i};
        check(loop_post(poster->stress->loop, on_post, post) == TCK_OK, "a post is taken");
    }
    return NULL;
}

static void work(void *ctx)
{
    struct job *job = ctx;

    job->worked++;
    atomic_fetch_add(&job->stress->jobs_worked, 1);
}

static void done(void *ctx, bool canceled)
{
    struct job *job = ctx;

    check(!canceled && job->worked == 1, "a job has worked exactly once before it is done");
    job->stress->jobs_done++;
    stop_when_complete(job->stress);
}

static void count_canceled(void *ctx, bool canceled)
{
    int *counts = ctx;

    counts[canceled]++;
}

static void do_nothing(void *ctx)
{
    (void)ctx;
}

/* Frees the pool while most of its jobs are queued. */
static void check_free_is_complete(struct loop *loop)
{
    struct pool *pool;
    int counts[2] = {0, 0};

    check(pool_new(loop, POOL_THREADS, &pool, NULL) == TCK_OK, "pool_new");
    for (int i = 0; i < JOBS; i++) {
        check(pool_submit(pool, do_nothing, count_canceled, counts) == TCK_OK, "pool_submit");
    }
    pool_free(pool);
    check(counts[0] + counts[1] == JOBS, "every job is done or canceled when the pool is freed");
}

int main(void)
{
    static struct job jobs[JOBS];
    struct poster posters[POSTERS];
    struct stress stress = {0};

    check(loop_new(&stress.loop, NULL) == TCK_OK, "loop_new");
    check(pool_new(stress.loop, POOL_THREADS, &stress.pool, NULL) == TCK_OK, "pool_new");
    for (int i = 0; i < POSTERS; i++) {
        posters[i] = (struct poster){.stress = &stress};
        check(pthread_create(&posters[i].thread, NULL, run_poster, &posters[i]) == 0, "pthread_create");
    }
    for (int i = 0; i < JOBS; i++) {
        jobs[i].stress = &stress;
        check(pool_submit(stress.pool, work, done, &jobs[i]) == TCK_OK, "pool_submit");
    }
    loop_run(stress.loop);
    for (int i = 0; i < POSTERS; i++) {
        pthread_join(posters[i].thread, NULL);
    }
    check(stress.jobs_worked == JOBS, "every job has worked");
    pool_free(stress.pool);
    check_free_is_complete(stress.loop);
    loop_free(stress.loop);
    return 0;
}
