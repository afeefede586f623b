/* SPDX-License-Identifier: Apache-2.0
 * The event loop of one thread: file descriptors (epoll), timers, and jobs posted by other threads (eventfd). All
 * callbacks run in loop_run's thread. A callback may add and remove any source, its own included. */
#ifndef TCK_BASE_LOOP_H
#define TCK_BASE_LOOP_H

#include "base/status.h"
#include <stdbool.h>

struct loop;
struct loop_fd;
struct loop_timer;

typedef void loop_fd_fn(void *ctx, uint32_t epoll_events);
typedef void loop_fn(void *ctx);
/* Called before the loop sleeps. Returns true if there is work left and the loop must not sleep (UCX's arm rule). */
typedef bool loop_poll_fn(void *ctx);

must_check tck_status_t loop_new(struct loop **out, struct error *err);
void loop_free(struct loop *loop); /* all sources must have been removed; posts that did not run are dropped */
void loop_run(struct loop *loop);  /* until loop_stop; runs the turn to its end */
void loop_stop(struct loop *loop); /* loop's thread only; others post a function that calls it */

/* Level-triggered. The fd stays the caller's; remove it here before closing it. */
must_check tck_status_t loop_fd_add(struct loop *loop, int fd, uint32_t events, loop_fd_fn *fn, void *ctx,
                                    struct loop_fd **out);
void loop_fd_remove(struct loop_fd *source);

/* A timer is created stopped; loop_timer_set starts it: once after delay_ms, or every delay_ms if repeat. */
must_check tck_status_t loop_timer_add(struct loop *loop, loop_fn *fn, void *ctx, struct loop_timer **out);
void loop_timer_set(struct loop_timer *timer, uint64_t delay_ms, bool repeat);
void loop_timer_stop(struct loop_timer *timer);
void loop_timer_remove(struct loop_timer *timer);

must_check tck_status_t loop_poll_add(struct loop *loop, loop_poll_fn *fn, void *ctx);
void loop_poll_remove(struct loop *loop, loop_poll_fn *fn, void *ctx);

/* Runs fn(ctx) soon in the loop's thread. Safe from any thread; posts of one thread keep their order. */
must_check tck_status_t loop_post(struct loop *loop, loop_fn *fn, void *ctx);

#endif
