/* SPDX-License-Identifier: Apache-2.0
 * The event loop. One turn: ask the poll functions, sleep in epoll_wait until the next timer, call the ready sources
 * (the eventfd behind loop_post is one of them), run the due timers. Everything but the queue of posts belongs to the
 * loop's thread. */
#include "base/loop.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EVENTS_PER_TURN 64
#define NS_PER_MS       1000000u

struct loop_fd {
    struct loop *loop;
    int fd;
    loop_fd_fn *fn;
    void *ctx;
    bool removed;
    struct loop_fd *next_removed;
};

struct loop_timer {
    struct loop *loop;
    loop_fn *fn;
    void *ctx;
    uint64_t due_ns;
    uint64_t period_ns; /* 0: once */
    bool running;       /* in the loop's list */
    struct loop_timer *next;
};

struct poll_entry {
    loop_poll_fn *fn; /* NULL: removed; its place is reused after the end of the turn */
    void *ctx;
};

struct post {
    loop_fn *fn;
    void *ctx;
    struct post *next;
};

struct loop {
    int epoll_fd;
    int wake_fd;
    struct loop_fd *wake;
    bool stopping;
    struct loop_fd *removed; /* freed at the end of the turn: epoll_wait may already have returned an event for them */
    struct loop_timer *timers; /* running ones, by due_ns; those due at the same time in the order in which they were
                                  set */
    struct poll_entry *polls;
    size_t poll_count;
    pthread_mutex_t lock; /* of the two below */
    struct post *first_post;
    struct post **post_end;
};

static void bury_removed(struct loop *loop)
{
    size_t kept = 0;

    while (loop->removed != NULL) {
        struct loop_fd *source = loop->removed;

        loop->removed = source->next_removed;
        free(source);
    }
    for (size_t i = 0; i < loop->poll_count; i++) {
        if (loop->polls[i].fn != NULL) {
            loop->polls[kept++] = loop->polls[i];
        }
    }
    loop->poll_count = kept;
}

/* ---- file descriptors ---- */

tck_status_t loop_fd_add(struct loop *loop, int fd, uint32_t events, loop_fd_fn *fn, void *ctx, struct loop_fd **out)
{
    struct loop_fd *source = calloc(1, sizeof(*source));
    struct epoll_event event = {.events = events, .data.ptr = source};

    if (source == NULL) {
        return TCK_ERR_NOMEM;
    }
    *source = (struct loop_fd){.loop = loop, .fd = fd, .fn = fn, .ctx = ctx};
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        free(source);
        return status_of_errno(errno);
    }
    *out = source;
    return TCK_OK;
}

void loop_fd_remove(struct loop_fd *source)
{
    struct loop *loop = source->loop;

    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL) < 0) {
        log_error("remove fd %d from the loop, was it closed before? %m", source->fd);
    }
    source->removed = true;
    source->next_removed = loop->removed;
    loop->removed = source;
}

/* ---- timers ---- */

tck_status_t loop_timer_add(struct loop *loop, loop_fn *fn, void *ctx, struct loop_timer **out)
{
    struct loop_timer *timer = calloc(1, sizeof(*timer));

    if (timer == NULL) {
        return TCK_ERR_NOMEM;
    }
    *timer = (struct loop_timer){.loop = loop, .fn = fn, .ctx = ctx};
    *out = timer;
    return TCK_OK;
}

static void timer_start(struct loop_timer *timer, uint64_t due_ns)
{
    struct loop_timer **at = &timer->loop->timers;

    while (*at != NULL && (*at)->due_ns <= due_ns) {
        at = &(*at)->next;
    }
    timer->due_ns = due_ns;
    timer->next = *at;
    timer->running = true;
    *at = timer;
}

void loop_timer_set(struct loop_timer *timer, uint64_t delay_ms, bool repeat)
{
    uint64_t delay_ns, due_ns;

    if (__builtin_mul_overflow(delay_ms, NS_PER_MS, &delay_ns) ||
        __builtin_add_overflow(clock_ns(), delay_ns, &due_ns)) {
        delay_ns = UINT64_MAX;
        due_ns = UINT64_MAX;
    }
    loop_timer_stop(timer);
    timer->period_ns = repeat ? delay_ns + (delay_ns == 0) : 0; /* a period of 0 would never end the turn */
    timer_start(timer, due_ns);
}

void loop_timer_stop(struct loop_timer *timer)
{
    struct loop_timer **at = &timer->loop->timers;

    if (!timer->running) {
        return;
    }
    while (*at != timer) {
        at = &(*at)->next;
    }
    *at = timer->next;
    timer->running = false;
}

void loop_timer_remove(struct loop_timer *timer)
{
    loop_timer_stop(timer);
    free(timer);
}

/* Keeps the rhythm of a repeating timer, but periods that were missed altogether are left out. */
static void timer_restart(struct loop_timer *timer, uint64_t now_ns)
{
    uint64_t due_ns;

    if (__builtin_add_overflow(timer->due_ns, timer->period_ns, &due_ns)) {
        due_ns = UINT64_MAX;
    }
    timer_start(timer, due_ns > now_ns ? due_ns : now_ns + timer->period_ns);
}

static void run_timers(struct loop *loop)
{
    uint64_t now_ns = clock_ns();

    while (loop->timers != NULL && loop->timers->due_ns <= now_ns) {
        struct loop_timer *timer = loop->timers;

        loop_timer_stop(timer);
        if (timer->period_ns > 0) {
            timer_restart(timer, now_ns);
        }
        timer->fn(timer->ctx); /* may free the timer */
    }
}

/* For epoll_wait: milliseconds until the next timer, rounded up so that it never wakes just before it. */
static int sleep_ms(const struct loop *loop)
{
    uint64_t now_ns, left_ms;

    if (loop->timers == NULL) {
        return -1;
    }
    now_ns = clock_ns();
    if (loop->timers->due_ns <= now_ns) {
        return 0;
    }
    left_ms = (loop->timers->due_ns - now_ns - 1) / NS_PER_MS + 1;
    return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

/* ---- poll functions ---- */

tck_status_t loop_poll_add(struct loop *loop, loop_poll_fn *fn, void *ctx)
{
    struct poll_entry *polls = reallocarray(loop->polls, loop->poll_count + 1, sizeof(*polls));

    if (polls == NULL) {
        return TCK_ERR_NOMEM;
    }
    polls[loop->poll_count++] = (struct poll_entry){.fn = fn, .ctx = ctx};
    loop->polls = polls;
    return TCK_OK;
}

void loop_poll_remove(struct loop *loop, loop_poll_fn *fn, void *ctx)
{
    for (size_t i = 0; i < loop->poll_count; i++) {
        if (loop->polls[i].fn == fn && loop->polls[i].ctx == ctx) {
            loop->polls[i].fn = NULL;
            return;
        }
    }
}

/* True if one of them has work left. */
static bool run_polls(struct loop *loop)
{
    bool work_left = false;

    for (size_t i = 0; i < loop->poll_count; i++) {
        struct poll_entry poll = loop->polls[i]; /* the array may move while it is called */

        if (poll.fn != NULL && poll.fn(poll.ctx)) {
            work_left = true;
        }
    }
    return work_left;
}

/* ---- posts ---- */

tck_status_t loop_post(struct loop *loop, loop_fn *fn, void *ctx)
{
    struct post *post = calloc(1, sizeof(*post));
    bool was_empty;

    if (post == NULL) {
        return TCK_ERR_NOMEM;
    }
    *post = (struct post){.fn = fn, .ctx = ctx};
    pthread_mutex_lock(&loop->lock);
    was_empty = loop->first_post == NULL;
    *loop->post_end = post;
    loop->post_end = &post->next;
    pthread_mutex_unlock(&loop->lock);
    if (was_empty) {
        eventfd_write(loop->wake_fd, 1); /* fails only when the counter is full, and then the loop is awake */
    }
    return TCK_OK;
}

static struct post *take_posts(struct loop *loop)
{
    struct post *posts;

    pthread_mutex_lock(&loop->lock);
    posts = loop->first_post;
    loop->first_post = NULL;
    loop->post_end = &loop->first_post;
    pthread_mutex_unlock(&loop->lock);
    return posts;
}

/* Clears the eventfd before it takes the queue: a post that comes in between is either taken or wakes the loop again.
 */
static void run_posts(void *ctx, uint32_t epoll_events)
{
    struct loop *loop = ctx;
    struct post *posts;
    eventfd_t count;

    (void)epoll_events;
    eventfd_read(loop->wake_fd, &count);
    posts = take_posts(loop);
    while (posts != NULL) {
        struct post *post = posts;

        posts = post->next;
        post->fn(post->ctx);
        free(post);
    }
}

/* ---- the loop ---- */

static tck_status_t open_fds(struct loop *loop, struct error *err)
{
    tck_status_t status;

    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll_fd < 0) {
        return error_set(err, status_of_errno(errno), "create epoll: %m");
    }
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->wake_fd < 0) {
        status = error_set(err, status_of_errno(errno), "create eventfd: %m");
        goto close_epoll;
    }
    status = loop_fd_add(loop, loop->wake_fd, EPOLLIN, run_posts, loop, &loop->wake);
    if (status != TCK_OK) {
        error_set(err, status, "watch the eventfd of the loop");
        goto close_wake;
    }
    return TCK_OK;

close_wake:
    close(loop->wake_fd);
close_epoll:
    close(loop->epoll_fd);
    return status;
}

tck_status_t loop_new(struct loop **out, struct error *err)
{
    struct loop *loop = calloc(1, sizeof(*loop));
    tck_status_t status;

    if (loop == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "allocate an event loop");
    }
    loop->post_end = &loop->first_post;
    status = open_fds(loop, err);
    if (status != TCK_OK) {
        free(loop);
        return status;
    }
    pthread_mutex_init(&loop->lock, NULL);
    *out = loop;
    return TCK_OK;
}

void loop_free(struct loop *loop)
{
    struct post *posts;

    if (loop == NULL) {
        return;
    }
    loop_fd_remove(loop->wake);
    bury_removed(loop);
    posts = take_posts(loop);
    while (posts != NULL) {
        struct post *next = posts->next;

        free(posts);
        posts = next;
    }
    close(loop->wake_fd);
    close(loop->epoll_fd);
    pthread_mutex_destroy(&loop->lock);
    free(loop->polls);
    free(loop);
}

static void run_turn(struct loop *loop)
{
    struct epoll_event events[EVENTS_PER_TURN];
    bool work_left = run_polls(loop);
    int count = epoll_wait(loop->epoll_fd, events, EVENTS_PER_TURN, work_left || loop->stopping ? 0 : sleep_ms(loop));

    if (count < 0 && errno != EINTR) {
        log_error("the event loop ends: epoll_wait: %m");
        loop->stopping = true;
    }
    for (int i = 0; i < count; i++) {
        struct loop_fd *source = events[i].data.ptr;

        if (!source->removed) {
            source->fn(source->ctx, events[i].events);
        }
    }
    run_timers(loop);
    bury_removed(loop);
}

void loop_run(struct loop *loop)
{
    while (!loop->stopping) {
        run_turn(loop);
    }
    loop->stopping = false;
}

void loop_stop(struct loop *loop)
{
    loop->stopping = true;
}
