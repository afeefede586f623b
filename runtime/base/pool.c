/* SPDX-License-Identifier: Apache-2.0
 * The thread pool. A job is one allocation made at submit, so finishing it cannot fail; finished jobs queue up for the
 * loop, which an eventfd wakes. */
#include "base/pool.h"

#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define SPARES_MAX 28 /* threads in addition to those that a pool starts with */

struct job {
    pool_work_fn *work;
    pool_done_fn *done;
    void *ctx;
    struct job *next;
};

struct job_queue {
    struct job *first;
    struct job **end;
};

struct pool {
    struct loop_fd *source;
    int wake_fd;
    pthread_mutex_t lock;
    pthread_cond_t work_or_stop;
    bool stopping;            /* under lock, as the two queues and the count */
    struct job_queue waiting; /* for a thread */
    size_t waiting_count;
    struct job_queue finished; /* for the loop */
    int thread_count, thread_cap;
    pthread_t threads[];
};

static void queue_init(struct job_queue *queue)
{
    queue->first = NULL;
    queue->end = &queue->first;
}

static void queue_push(struct job_queue *queue, struct job *job)
{
    job->next = NULL;
    *queue->end = job;
    queue->end = &job->next;
}

static struct job *queue_pop(struct job_queue *queue)
{
    struct job *job = queue->first;

    if (job != NULL) {
        queue->first = job->next;
        if (queue->first == NULL) {
            queue->end = &queue->first;
        }
    }
    return job;
}

/* The next job; waits for one, NULL if the pool stops. */
static struct job *next_job(struct pool *pool)
{
    struct job *job = NULL;

    pthread_mutex_lock(&pool->lock);
    while (!pool->stopping && pool->waiting.first == NULL) {
        pthread_cond_wait(&pool->work_or_stop, &pool->lock);
    }
    if (!pool->stopping) {
        job = queue_pop(&pool->waiting);
        pool->waiting_count--;
    }
    pthread_mutex_unlock(&pool->lock);
    return job;
}

static void *run_thread(void *arg)
{
    struct pool *pool = arg;
    struct job *job;

    while ((job = next_job(pool)) != NULL) {
        job->work(job->ctx);
        pthread_mutex_lock(&pool->lock);
        queue_push(&pool->finished, job);
        pthread_mutex_unlock(&pool->lock);
        eventfd_write(pool->wake_fd, 1); /* fails only when the counter is full, and then the loop is awake */
    }
    return NULL;
}

static struct job *take_all(struct pool *pool, struct job_queue *queue)
{
    struct job *jobs;

    pthread_mutex_lock(&pool->lock);
    jobs = queue->first;
    queue_init(queue);
    pthread_mutex_unlock(&pool->lock);
    return jobs;
}

static void run_done(struct pool *pool, struct job_queue *queue, bool canceled)
{
    struct job *jobs = take_all(pool, queue);

    while (jobs != NULL) {
        struct job *job = jobs;

        jobs = job->next;
        job->done(job->ctx, canceled);
        free(job);
    }
}

static void on_finished(void *ctx, uint32_t epoll_events)
{
    struct pool *pool = ctx;
    eventfd_t count;

    (void)epoll_events;
    eventfd_read(pool->wake_fd, &count);
    run_done(pool, &pool->finished, false);
}

static void stop_threads(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->work_or_stop);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->thread_count; i++) {
        pthread_join(pool->threads[i], NULL);
    }
}

/* Returns an errno; 0: started. */
static int add_thread(struct pool *pool)
{
    int rc = thread_start(&pool->threads[pool->thread_count], run_thread, pool);
    pool->thread_count += rc == 0;
    return rc;
}

static tck_status_t start_threads(struct pool *pool, int threads, struct error *err)
{
    int rc = 0;

    while (rc == 0 && pool->thread_count < threads) {
        rc = add_thread(pool);
    }
    if (rc != 0) {
        errno = rc;
        error_set(err, status_of_errno(rc), "start pool thread %d of %d: %m", pool->thread_count + 1, threads);
        stop_threads(pool);
        return status_of_errno(rc);
    }
    return TCK_OK;
}

bool pool_grow(struct pool *pool)
{
    return pool->thread_count < pool->thread_cap && add_thread(pool) == 0;
}

static tck_status_t watch_finished(struct pool *pool, struct loop *loop, struct error *err)
{
    tck_status_t status;

    pool->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (pool->wake_fd < 0) {
        return error_set(err, status_of_errno(errno), "create eventfd: %m");
    }
    status = loop_fd_add(loop, pool->wake_fd, EPOLLIN, on_finished, pool, &pool->source);
    if (status != TCK_OK) {
        close(pool->wake_fd);
        return error_set(err, status, "watch the eventfd of a pool");
    }
    return TCK_OK;
}

static void free_stopped(struct pool *pool)
{
    pthread_cond_destroy(&pool->work_or_stop);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

tck_status_t pool_new(struct loop *loop, int threads, struct pool **out, struct error *err)
{
    struct pool *pool;
    tck_status_t status;

    if (threads < 1) {
        return error_set(err, TCK_ERR_INVAL, "a pool of %d threads", threads);
    }
    pool = calloc(1, sizeof(*pool) + (size_t)(threads + SPARES_MAX) * sizeof(pool->threads[0]));
    if (pool == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "allocate a pool of %d threads", threads);
    }
    pool->thread_cap = threads + SPARES_MAX;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work_or_stop, NULL);
    queue_init(&pool->waiting);
    queue_init(&pool->finished);
    status = watch_finished(pool, loop, err);
    if (status != TCK_OK) {
        goto free_pool;
    }
    status = start_threads(pool, threads, err);
    if (status != TCK_OK) {
        goto unwatch;
    }
    *out = pool;
    return TCK_OK;

unwatch:
    loop_fd_remove(pool->source);
    close(pool->wake_fd);
free_pool:
    free_stopped(pool);
    return status;
}

size_t pool_waiting(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    size_t count = pool->waiting_count;
    pthread_mutex_unlock(&pool->lock);
    return count;
}

void pool_free(struct pool *pool)
{
    if (pool == NULL) {
        return;
    }
    stop_threads(pool);
    loop_fd_remove(pool->source);
    close(pool->wake_fd);
    run_done(pool, &pool->finished, false);
    run_done(pool, &pool->waiting, true);
    free_stopped(pool);
}

tck_status_t pool_submit(struct pool *pool, pool_work_fn *work, pool_done_fn *done, void *ctx)
{
    struct job *job = calloc(1, sizeof(*job));
    bool stopping;

    if (job == NULL) {
        return TCK_ERR_NOMEM;
    }
    *job = (struct job){.work = work, .done = done, .ctx = ctx};
    pthread_mutex_lock(&pool->lock);
    stopping = pool->stopping;
    if (!stopping) {
        queue_push(&pool->waiting, job);
        pool->waiting_count++;
        pthread_cond_signal(&pool->work_or_stop);
    }
    pthread_mutex_unlock(&pool->lock);
    if (stopping) {
        free(job);
        return TCK_ERR_CANCELED;
    }
    return TCK_OK;
}
