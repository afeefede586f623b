/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <semaphore.h>
#include <signal.h>

struct seen {
    sigset_t blocked;
    sem_t done;
};

static void *look(void *ctx)
{
    struct seen *seen = ctx;
    pthread_sigmask(SIG_BLOCK, NULL, &seen->blocked);
    sem_post(&seen->done);
    return seen;
}

static void check_all_are_blocked(const struct seen *seen)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGXFSZ, SIGUSR1, SIGCHLD};
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
        cr_assert(eq(int, sigismember(&seen->blocked, signals[i]), 1), "signal %d", signals[i]);
    }
}

Test(thread, has_all_signals_blocked)
{
    struct seen seen;
    pthread_t thread;
    void *result;
    sem_init(&seen.done, 0, 0);
    cr_assert(eq(int, thread_start(&thread, look, &seen), 0));
    pthread_join(thread, &result);
    cr_assert(eq(ptr, result, &seen));
    check_all_are_blocked(&seen);
}

Test(thread, detached_has_all_signals_blocked)
{
    struct seen seen;
    sem_init(&seen.done, 0, 0);
    cr_assert(eq(int, thread_start_detached(look, &seen), 0));
    sem_wait(&seen.done);
    check_all_are_blocked(&seen);
}

Test(thread, leaves_the_signals_of_its_creator_as_they_were)
{
    struct seen seen;
    sigset_t one, after;
    sem_init(&seen.done, 0, 0);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &one, NULL);
    cr_assert(eq(int, thread_start_detached(look, &seen), 0));
    sem_wait(&seen.done);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    cr_assert(eq(int, sigismember(&after, SIGUSR1), 1));
    cr_assert(eq(int, sigismember(&after, SIGTERM), 0));
}
