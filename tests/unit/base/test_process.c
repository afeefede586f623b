/* SPDX-License-Identifier: Apache-2.0
 * A process counts as ended only when it has really ended: not while it is stopped, and not because of its pid alone.
 */
#include "base/process.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t child;

static void start_child(void)
{
    child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        for (;;) {
            pause();
        }
    }
}

static void end_child(void)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

TestSuite(process, .init = start_child, .fini = end_child);

Test(process, is_there_while_it_is_stopped)
{
    struct process p = process_of(child);
    int status;
    cr_assert_eq(p.pid, child);
    cr_assert_gt(p.start, 0);
    cr_assert_not(process_has_ended(p));
    kill(child, SIGSTOP);
    cr_assert_eq(waitpid(child, &status, WUNTRACED), child);
    cr_assert_not(process_has_ended(p));
}

Test(process, has_ended_before_anybody_has_waited_for_it)
{
    struct process p = process_of(child);
    siginfo_t info;
    kill(child, SIGKILL);
    cr_assert_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    cr_assert(process_has_ended(p));
}

Test(process, has_ended_when_its_number_is_given_to_another_one)
{
    struct process p = process_of(child);
    p.start--;
    cr_assert(process_has_ended(p));
    end_child();
    start_child();
}

Test(process, has_ended_when_no_process_has_its_number)
{
    struct process p = process_of(child);
    end_child();
    cr_assert(process_has_ended(p));
    start_child();
}

Test(process, of_which_only_the_number_is_known_is_there_while_that_is)
{
    cr_assert_not(process_has_ended((struct process){.pid = child}));
}
