/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <sched.h>
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

static void *policy_of_one_that_never_preempts(void *ctx)
{
    int *policy = ctx;
    thread_never_preempts();
    *policy = sched_getscheduler(0);
    return NULL;
}

static int policy_within(int of_creator)
{
    pthread_t thread;
    int policy = -1;
    const struct sched_param none = {0};
    cr_assert(eq(int, sched_setscheduler(0, of_creator, &none), 0));
    cr_assert(eq(int, thread_start(&thread, policy_of_one_that_never_preempts, &policy), 0));
    pthread_join(thread, NULL);
    return policy;
}

Test(thread, that_never_preempts_changes_only_the_default_policy)
{
    cr_assert(eq(int, policy_within(SCHED_OTHER), SCHED_BATCH));
    cr_assert(eq(int, sched_getscheduler(0), SCHED_OTHER), "that of the creator");
    cr_assert(eq(int, policy_within(SCHED_IDLE), SCHED_IDLE));
}
