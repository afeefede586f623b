/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/loop.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

static struct loop *loop;
static char trace[64]; /* one letter per callback, in order */
static size_t trace_len;

static void setup(void)
{
    struct error err;

    cr_assert_eq(loop_new(&loop, &err), TCK_OK, "%s", err.text);
}

static void teardown(void)
{
    loop_free(loop);
}

TestSuite(loop, .init = setup, .fini = teardown);

static void note(char letter)
{
    cr_assert_lt(trace_len, sizeof(trace) - 1);
    trace[trace_len++] = letter;
}

static void note_and_stop(void *ctx)
{
    note(*(const char *)ctx);
    loop_stop(loop);
}

static void note_only(void *ctx)
{
    note(*(const char *)ctx);
}

/* ctx for note_only: the letter itself. */
static void *letter(const char *text)
{
    return (void *)(uintptr_t)text;
}

static void stop(void *ctx)
{
    (void)ctx;
    loop_stop(loop);
}

/* Runs the loop until everything that is ready now has been called. */
static void run_ready(void)
{
    cr_assert_eq(loop_post(loop, stop, NULL), TCK_OK);
    loop_run(loop);
}

/* ---- file descriptors ---- */

struct pipe_source {
    int fds[2];
    struct loop_fd *source;
    struct pipe_source *victim; /* removed by the callback */
    int calls;
};

static void on_pipe(void *ctx, uint32_t epoll_events)
{
    struct pipe_source *pipe_source = ctx;

    (void)epoll_events;
    pipe_source->calls++;
    if (pipe_source->victim != NULL) {
        loop_fd_remove(pipe_source->victim->source);
        close(pipe_source->victim->fds[0]);
        pipe_source->victim->source = NULL;
    }
    loop_stop(loop);
}

/* A pipe that is readable from the start. */
static void pipe_open(struct pipe_source *pipe_source)
{
    *pipe_source = (struct pipe_source){0};
    cr_assert_eq(pipe2(pipe_source->fds, O_CLOEXEC), 0);
    cr_assert_eq(write(pipe_source->fds[1], "x", 1), 1);
    cr_assert_eq(loop_fd_add(loop, pipe_source->fds[0], EPOLLIN, on_pipe, pipe_source, &pipe_source->source), TCK_OK);
}

Test(loop, calls_a_ready_descriptor_until_it_is_read)
{
    struct pipe_source a;
    char c;

    pipe_open(&a);
    loop_run(loop);
    loop_run(loop);
    cr_assert_eq(a.calls, 2);
    cr_assert_eq(read(a.fds[0], &c, 1), 1);
    run_ready();
    cr_assert_eq(a.calls, 2);
    loop_fd_remove(a.source);
}

Test(loop, source_may_remove_itself_in_its_callback)
{
    struct pipe_source a;

    pipe_open(&a);
    a.victim = &a;
    loop_run(loop);
    run_ready();
    cr_assert_eq(a.calls, 1);
}

Test(loop, source_removed_by_another_in_the_same_turn_is_not_called)
{
    struct pipe_source a, b;

    pipe_open(&a);
    pipe_open(&b);
    a.victim = &b;
    b.victim = &a;
    loop_run(loop); /* both are ready: whichever comes first removes the other */
    cr_assert_eq(a.calls + b.calls, 1);
    loop_fd_remove(a.source != NULL ? a.source : b.source);
}

Test(loop, refuses_a_descriptor_that_cannot_be_watched)
{
    struct loop_fd *source = NULL;

    cr_assert_neq(loop_fd_add(loop, -1, EPOLLIN, on_pipe, NULL, &source), TCK_OK);
    cr_assert_null(source);
}

/* ---- timers ---- */

static struct loop_timer *new_timer(loop_fn *fn, void *ctx)
{
    struct loop_timer *timer;

    cr_assert_eq(loop_timer_add(loop, fn, ctx, &timer), TCK_OK);
    return timer;
}

Test(loop, timers_run_in_the_order_of_their_times)
{
    struct loop_timer *c = new_timer(note_and_stop, letter("c"));
    struct loop_timer *a = new_timer(note_only, letter("a"));
    struct loop_timer *b = new_timer(note_only, letter("b"));

    loop_timer_set(c, 30, false);
    loop_timer_set(a, 1, false);
    loop_timer_set(b, 10, false);
    loop_run(loop);
    cr_assert_str_eq(trace, "abc");
    loop_timer_remove(a);
    loop_timer_remove(b);
    loop_timer_remove(c);
}

Test(loop, timer_never_runs_early)
{
    struct loop_timer *timer = new_timer(stop, NULL);
    uint64_t start = clock_ns();

    loop_timer_set(timer, 20, false);
    loop_run(loop);
    cr_assert_geq(clock_ns() - start, 20u * 1000000u);
    loop_timer_remove(timer);
}

Test(loop, new_timer_is_stopped_and_a_stopped_timer_does_not_run)
{
    struct loop_timer *never_set = new_timer(note_only, letter("x"));
    struct loop_timer *stopped = new_timer(note_only, letter("y"));
    struct loop_timer *last = new_timer(note_and_stop, letter("z"));

    loop_timer_set(stopped, 1, true);
    loop_timer_stop(stopped);
    loop_timer_stop(stopped);
    loop_timer_set(last, 5, false);
    loop_run(loop);
    cr_assert_str_eq(trace, "z");
    loop_timer_remove(never_set);
    loop_timer_remove(stopped);
    loop_timer_remove(last);
}

Test(loop, setting_a_running_timer_replaces_its_time)
{
    struct loop_timer *a = new_timer(note_and_stop, letter("a"));
    struct loop_timer *b = new_timer(note_only, letter("b"));

    loop_timer_set(a, 1, false);
    loop_timer_set(b, 5, false);
    loop_timer_set(a, 10, false);
    loop_run(loop);
    cr_assert_str_eq(trace, "ba");
    loop_timer_remove(a);
    loop_timer_remove(b);
}

static void note_until_three(void *ctx)
{
    note(*(const char *)ctx);
    if (trace_len == 3) {
        loop_stop(loop);
    }
}

Test(loop, repeating_timer_goes_on)
{
    struct loop_timer *timer = new_timer(note_until_three, letter("r"));

    loop_timer_set(timer, 1, true);
    loop_run(loop);
    cr_assert_str_eq(trace, "rrr");
    loop_timer_remove(timer);
}

Test(loop, timer_repeating_without_delay_lets_others_run)
{
    struct loop_timer *busy = new_timer(note_until_three, letter("r"));
    struct pipe_source a;

    pipe_open(&a);
    loop_timer_set(busy, 0, true);
    loop_run(loop);
    cr_assert_geq(a.calls, 1);
    loop_timer_remove(busy);
    loop_fd_remove(a.source);
}

static struct loop_timer *suicidal;

static void remove_own_timer(void *ctx)
{
    note_and_stop(ctx);
    loop_timer_remove(suicidal);
}

Test(loop, timer_may_remove_itself_in_its_callback)
{
    suicidal = new_timer(remove_own_timer, letter("s"));
    loop_timer_set(suicidal, 0, true);
    loop_run(loop);
    run_ready();
    cr_assert_str_eq(trace, "s");
}

Test(loop, longest_delay_does_not_wrap_around)
{
    struct loop_timer *far = new_timer(note_only, letter("f"));
    struct loop_timer *near = new_timer(note_and_stop, letter("n"));

    loop_timer_set(far, UINT64_MAX, true);
    loop_timer_set(near, 2, false);
    loop_run(loop);
    cr_assert_str_eq(trace, "n");
    loop_timer_remove(far);
    loop_timer_remove(near);
}

/* ---- poll functions ---- */

static bool busy_three_times(void *ctx)
{
    int *calls = ctx;

    if (++*calls == 3) {
        loop_stop(loop);
    }
    return true;
}

Test(loop, does_not_sleep_while_a_poll_function_has_work)
{
    int calls = 0;

    cr_assert_eq(loop_poll_add(loop, busy_three_times, &calls), TCK_OK);
    loop_run(loop); /* would sleep forever, because there is no other source */
    cr_assert_eq(calls, 3);
    loop_poll_remove(loop, busy_three_times, &calls);
}

static bool remove_self(void *ctx)
{
    ++*(int *)ctx;
    loop_poll_remove(loop, remove_self, ctx);
    return false;
}

static bool count_poll(void *ctx)
{
    ++*(int *)ctx;
    return false;
}

Test(loop, poll_function_may_remove_itself)
{
    int removed_calls = 0, other_calls = 0;

    cr_assert_eq(loop_poll_add(loop, remove_self, &removed_calls), TCK_OK);
    cr_assert_eq(loop_poll_add(loop, count_poll, &other_calls), TCK_OK);
    run_ready();
    run_ready();
    cr_assert_eq(removed_calls, 1);
    cr_assert_eq(other_calls, 2);
    loop_poll_remove(loop, count_poll, &other_calls);
    run_ready();
    cr_assert_eq(other_calls, 2);
}

/* ---- posts ---- */

static void post_again(void *ctx)
{
    note_only(ctx);
    cr_assert_eq(loop_post(loop, note_and_stop, letter("2")), TCK_OK);
}

Test(loop, posts_run_in_order_and_may_post)
{
    cr_assert_eq(loop_post(loop, post_again, letter("1")), TCK_OK);
    loop_run(loop);
    cr_assert_str_eq(trace, "12");
}

static void *post_from_thread(void *arg)
{
    cr_assert_eq(loop_post(loop, note_and_stop, arg), TCK_OK);
    return NULL;
}

Test(loop, post_of_another_thread_wakes_the_loop)
{
    pthread_t thread;

    cr_assert_eq(pthread_create(&thread, NULL, post_from_thread, letter("t")), 0);
    loop_run(loop);
    pthread_join(thread, NULL);
    cr_assert_str_eq(trace, "t");
}

Test(loop, stop_before_run_ends_the_next_run_only)
{
    loop_stop(loop);
    loop_run(loop);
    run_ready();
}

Test(loop, freeing_drops_posts_that_did_not_run)
{
    cr_assert_eq(loop_post(loop, note_only, letter("x")), TCK_OK);
}
