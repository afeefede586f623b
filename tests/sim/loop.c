/* SPDX-License-Identifier: Apache-2.0
 * An agent's loop and its pools, implemented as events of the world. Removed objects are not freed, because an event
 * may still point to them; they end with the process. */
#include "sim.h"

#include "agent/drain/archiver.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>

#define POLLS_MAX 8

struct loop {
    struct host *host;
    uint32_t life; /* of the host's agent that owns this loop */
    bool stopped;
    struct {
        loop_poll_fn *fn;
        void *ctx;
    } polls[POLLS_MAX];
    size_t poll_count;
    struct pool *pools;
    struct loop_timer *timers;
};

struct loop_fd {
    struct loop *loop;
    struct object *object;
    loop_fd_fn *fn;
    void *ctx;
    bool removed, pending;
};

struct loop_timer {
    struct loop_timer *next;
    struct loop *loop;
    loop_fn *fn;
    void *ctx;
    uint64_t repeat_us;
    uint64_t due_us; /* time of the next firing; 0: it is not set */
    uint32_t set;    /* number of settings: a firing of an earlier setting is ignored */
};

struct firing {
    struct loop_timer *timer;
    uint32_t set;
};

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

tck_status_t loop_new(struct loop **out, struct error *err)
{
    (void)err;
    *out = calloc(1, sizeof(**out));
    (*out)->host = sim.current;
    (*out)->life = sim.current->life;
    sim.current->loop = *out;
    return TCK_OK;
}

void loop_free(struct loop *loop)
{
    (void)loop;
}

void loop_stop(struct loop *loop)
{
    loop->stopped = true;
}

bool loop_is_stopped(const struct loop *loop)
{
    return loop->stopped;
}

void loop_after_callback(struct loop *loop)
{
    bool again = true;
    for (int turns = 0; again && turns < 1000; turns++) {
        again = false;
        for (size_t i = 0; i < loop->poll_count; i++) {
            again |= loop->polls[i].fn(loop->polls[i].ctx);
        }
    }
}

tck_status_t loop_poll_add(struct loop *loop, loop_poll_fn *fn, void *ctx)
{
    if (loop->poll_count == POLLS_MAX) {
        return TCK_ERR_NOMEM;
    }
    loop->polls[loop->poll_count].fn = fn;
    loop->polls[loop->poll_count++].ctx = ctx;
    return TCK_OK;
}

void loop_poll_remove(struct loop *loop, loop_poll_fn *fn, void *ctx)
{
    for (size_t i = 0; i < loop->poll_count; i++) {
        if (loop->polls[i].fn == fn && loop->polls[i].ctx == ctx) {
            loop->polls[i] = loop->polls[--loop->poll_count];
        }
    }
}

tck_status_t loop_post(struct loop *loop, loop_fn *fn, void *ctx)
{
    sim_after(1, loop->host, fn, ctx);
    return TCK_OK;
}

/* ---- timers ------------------------------------------------------------------------------------------------------ */

tck_status_t loop_timer_add(struct loop *loop, loop_fn *fn, void *ctx, struct loop_timer **out)
{
    *out = calloc(1, sizeof(**out));
    **out = (struct loop_timer){.next = loop->timers, .loop = loop, .fn = fn, .ctx = ctx};
    loop->timers = *out;
    return TCK_OK;
}

static void fire(void *ctx)
{
    struct firing *firing = ctx;
    struct loop_timer *timer = firing->timer;
    if (firing->set != timer->set) {
        free(firing);
        return;
    }
    timer->due_us = timer->repeat_us ? sim.us + timer->repeat_us : 0;
    if (timer->repeat_us) {
        sim_after(timer->repeat_us, timer->loop->host, fire, firing);
    } else {
        free(firing);
    }
    timer->fn(timer->ctx);
}

static void fire_in(struct loop_timer *timer, uint64_t delay_us)
{
    struct firing *firing = calloc(1, sizeof(*firing));
    *firing = (struct firing){timer, ++timer->set};
    timer->due_us = sim.us + delay_us;
    sim_after(delay_us, timer->loop->host, fire, firing);
}

void loop_timer_set(struct loop_timer *timer, uint64_t delay_ms, bool repeat)
{
    timer->repeat_us = repeat ? delay_ms * MS : 0;
    /* No two machines started at the same time. */
    fire_in(timer, repeat ? sim_between(1, delay_ms * MS) : delay_ms * MS);
}

void loop_timer_stop(struct loop_timer *timer)
{
    timer->set++;
    timer->due_us = 0;
}

void loop_timer_remove(struct loop_timer *timer)
{
    loop_timer_stop(timer);
}

void loop_clock_jumped(struct loop *loop, uint64_t by_us)
{
    for (struct loop_timer *timer = loop->timers; timer != NULL; timer = timer->next) {
        if (timer->due_us > 0) {
            fire_in(timer, timer->due_us > sim.us + by_us ? timer->due_us - sim.us - by_us : 0);
        }
    }
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

static void on_ready(void *ctx)
{
    struct loop_fd *source = ctx;
    source->pending = false;
    if (!source->removed) {
        source->fn(source->ctx, EPOLLIN);
    }
    if (!source->removed) {
        object_wake(source->object); /* level-triggered */
    }
}

static bool is_readable(const struct object *object)
{
    return object->first != NULL || object->hung_up;
}

void object_wake(struct object *object)
{
    struct loop_fd *source = object->source;
    bool lives = source != NULL && !source->removed && source->loop->life == source->loop->host->life;
    if (lives && !source->pending && is_readable(object)) {
        source->pending = true;
        sim_after(sim_between(1, 50), source->loop->host, on_ready, source);
    }
}

tck_status_t loop_fd_add(struct loop *loop, int fd, uint32_t events, loop_fd_fn *fn, void *ctx, struct loop_fd **out)
{
    (void)events;
    struct loop_fd *source = calloc(1, sizeof(*source));
    *source = (struct loop_fd){.loop = loop, .object = object_of(fd), .fn = fn, .ctx = ctx};
    if (source->object == NULL) {
        free(source);
        return TCK_ERR_INVAL;
    }
    source->object->source = source;
    *out = source;
    object_wake(source->object);
    return TCK_OK;
}

void loop_fd_remove(struct loop_fd *source)
{
    source->removed = true;
    source->object->source = NULL;
}

/* ---- pools ------------------------------------------------------------------------------------------------------- */

struct pool_job {
    struct pool_job *next;
    struct pool *pool;
    pool_work_fn *work;
    pool_done_fn *done;
    void *ctx;
    bool begun, worked;
};

struct pool {
    struct pool *next;
    struct loop *loop;
    uint32_t threads, busy;
    struct pool_job *jobs; /* in order of submission; removed when done */
    bool calls_storage;
    enum storage_place place; /* of its calls */
    bool closing;
};

static bool opens_archiver; /* whose threads call the archive */

tck_status_t __real_archiver_new(const struct archiver_setup *setup, struct archiver **out, struct error *err);
tck_status_t __wrap_archiver_new(const struct archiver_setup *setup, struct archiver **out, struct error *err);

tck_status_t __wrap_archiver_new(const struct archiver_setup *setup, struct archiver **out, struct error *err)
{
    opens_archiver = true;
    tck_status_t status = __real_archiver_new(setup, out, err);
    opens_archiver = false;
    return status;
}

tck_status_t pool_new(struct loop *loop, int threads, struct pool **out, struct error *err)
{
    (void)err;
    *out = calloc(1, sizeof(**out));
    **out = (struct pool){.next = loop->pools,
                          .loop = loop,
                          .threads = (uint32_t)threads,
                          .calls_storage = loop->pools != NULL, /* the first pool is for CPU-bound work */
                          .place = opens_archiver ? AT_ARCHIVE : AT_SAVE_DIR};
    loop->pools = *out;
    return TCK_OK;
}

bool pool_grow(struct pool *pool)
{
    pool->threads++;
    return pool->threads < 16;
}

static void unlink_job(struct pool_job *j)
{
    struct pool_job **at = &j->pool->jobs;
    while (*at != j) {
        at = &(*at)->next;
    }
    *at = j->next;
}

static void begin_jobs(struct pool *pool);

static void job_done(void *ctx)
{
    struct pool_job *j = ctx;
    struct pool *pool = j->pool;
    if (pool->closing) {
        return; /* pool_free has already ended it */
    }
    unlink_job(j);
    j->done(j->ctx, false);
    free(j);
    begin_jobs(pool);
}

static void job_work(struct pool_job *j)
{
    if (!j->worked) {
        j->worked = true;
        j->work(j->ctx);
    }
}

static void job_works(void *ctx)
{
    struct pool_job *j = ctx;
    uint64_t hangs_until_us = j->pool->calls_storage ? j->pool->loop->host->hangs_until_us[j->pool->place] : 0;
    if (j->pool->closing) {
        return;
    }
    if (hangs_until_us > sim.us) {
        sim_after(hangs_until_us - sim.us, j->pool->loop->host, job_works, j);
        return;
    }
    job_work(j);
    j->pool->busy--;
    sim_after(sim_between(1, 300), j->pool->loop->host, job_done, j);
}

static void begin_jobs(struct pool *pool)
{
    for (struct pool_job *j = pool->jobs; j != NULL && pool->busy < pool->threads; j = j->next) {
        if (!j->begun) {
            j->begun = true;
            pool->busy++;
            sim_after(sim_between(20, sim_chance(5) ? 20000 : 800), pool->loop->host, job_works, j);
        }
    }
}

size_t pool_waiting(struct pool *pool)
{
    size_t count = 0;
    for (const struct pool_job *j = pool->jobs; j != NULL; j = j->next) {
        count += !j->begun;
    }
    return count;
}

tck_status_t pool_submit(struct pool *pool, pool_work_fn *work, pool_done_fn *done, void *ctx)
{
    struct pool_job *j = calloc(1, sizeof(*j)), **at = &pool->jobs;
    if (pool->closing || (pool->loop->host->short_until_us > sim.us && sim_chance(30))) {
        free(j);
        return pool->closing ? TCK_ERR_CANCELED : TCK_ERR_NOMEM;
    }
    *j = (struct pool_job){.pool = pool, .work = work, .done = done, .ctx = ctx};
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = j;
    begin_jobs(pool);
    return TCK_OK;
}

void pool_free(struct pool *pool)
{
    if (pool == NULL) {
        return;
    }
    pool->closing = true;
    while (pool->jobs != NULL) {
        struct pool_job *j = pool->jobs;
        pool->jobs = j->next;
        if (j->begun) {
            job_work(j);
        }
        j->done(j->ctx, !j->begun);
    }
}

void pools_work(struct host *host)
{
    for (struct pool *pool = host->loop != NULL ? host->loop->pools : NULL; pool != NULL; pool = pool->next) {
        for (struct pool_job *j = pool->jobs; j != NULL; j = j->next) {
            j->begun = true;
            job_work(j);
        }
    }
}
