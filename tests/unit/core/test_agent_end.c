/* SPDX-License-Identifier: Apache-2.0
 * When an agent exits by itself. */
#include "core/agent_end.h"

#include <criterion/criterion.h>

#define SINCE  5000
#define LINGER 30000

/* ---- not needed any more ----------------------------------------------------------------------------------------- */

static struct agent_use idle(void)
{
    return (struct agent_use){.idle_since_ms = SINCE, .linger_ms = LINGER};
}

static struct agent_use done(void)
{
    struct agent_use use = idle();
    use.job_done = true;
    return use;
}

Test(agent_leave, is_put_off_while_there_are_trainers)
{
    struct agent_use use = done();
    use.trainers = true;
    cr_assert_eq(agent_leave_judge(&use, SINCE + LINGER), AGENT_IN_USE);
}

Test(agent_leave, does_not_wait_when_it_is_forced)
{
    struct agent_use use = {.stop_forced = true, .trainers = true};
    cr_assert_eq(agent_leave_judge(&use, SINCE), AGENT_LEAVES_STOPPED);
}

Test(agent_leave, comes_when_no_trainer_was_there_for_the_linger_time)
{
    struct agent_use use = idle();
    cr_assert_eq(agent_leave_judge(&use, SINCE + LINGER - 1), AGENT_IDLE);
    cr_assert_eq(agent_leave_judge(&use, SINCE + LINGER), AGENT_LEAVES_ALONE);
    use.idle_since_ms = 0;
    cr_assert_eq(agent_leave_judge(&use, SINCE + LINGER), AGENT_IDLE, "the time begins now");
}

Test(agent_leave, waits_for_the_linger_time_whatever_it_writes)
{
    struct agent_use use = idle();
    use.writes = true;
    cr_assert_eq(agent_leave_judge(&use, SINCE + LINGER), AGENT_LEAVES_ALONE);
}

Test(agent_leave, leaves_half_of_the_linger_time_to_drain_what_only_memory_has)
{
    struct agent_use use = idle();
    use.undrained = true;
    cr_assert_not(agent_drains_at_end(&use, SINCE + LINGER / 2 - 1));
    cr_assert(agent_drains_at_end(&use, SINCE + LINGER / 2));
    use.trainers = true;
    cr_assert_not(agent_drains_at_end(&use, SINCE + LINGER), "a trainer is there");
    use = done();
    use.undrained = true;
    cr_assert_not(agent_drains_at_end(&use, SINCE + LINGER), "the user has ended the job without it");
    use = idle();
    cr_assert_not(agent_drains_at_end(&use, SINCE + LINGER), "it is on storage, or a drain is wanted already");
    use = (struct agent_use){.undrained = true, .linger_ms = LINGER};
    cr_assert_not(agent_drains_at_end(&use, SINCE + LINGER), "the time begins now");
}

Test(agent_leave, comes_soon_when_the_job_is_done)
{
    struct agent_use use = done();
    cr_assert_eq(agent_leave_judge(&use, SINCE + AGENT_AFTER_DONE_MS - 1), AGENT_IDLE);
    cr_assert_eq(agent_leave_judge(&use, SINCE + AGENT_AFTER_DONE_MS), AGENT_LEAVES_DONE);
    use.linger_ms = 0;
    cr_assert_eq(agent_leave_judge(&use, SINCE), AGENT_LEAVES_DONE, "it does not linger at all");
}

Test(agent_leave, waits_after_the_job_for_what_is_being_written_but_not_for_ever)
{
    struct agent_use use = done();
    use.writes = true;
    cr_assert_eq(agent_leave_judge(&use, SINCE + AGENT_DRAIN_WAIT_MS - 1), AGENT_IDLE);
    cr_assert_eq(agent_leave_judge(&use, SINCE + AGENT_DRAIN_WAIT_MS), AGENT_LEAVES_DONE);
}

Test(agent_leave, waits_after_the_job_for_a_copy_to_the_archive_within_the_grace)
{
    struct agent_use use = done();
    use.copies = true;
    use.grace_ms = 20000;
    cr_assert_eq(agent_leave_judge(&use, SINCE + 19999), AGENT_IDLE);
    cr_assert_eq(agent_leave_judge(&use, SINCE + 20000), AGENT_LEAVES_DONE);
    use.grace_ms = 0;
    cr_assert_eq(agent_leave_judge(&use, SINCE + AGENT_AFTER_DONE_MS), AGENT_LEAVES_DONE);
    use.grace_ms = 20000;
    use.writes = true;
    cr_assert_eq(agent_leave_judge(&use, SINCE + 20000), AGENT_IDLE, "a drain has its own time");
}

/* ---- the system wants it to end ---------------------------------------------------------------------------------- */

#define GRACE 20000

static struct agent_use asked(void)
{
    return (struct agent_use){.trainers = true, .asked_ms = SINCE, .owes = true, .grace_ms = GRACE, .undrained = true};
}

Test(agent_leave, comes_at_once_when_the_system_asks_and_storage_has_everything)
{
    struct agent_use use = asked();
    use.owes = false;
    cr_assert_eq(agent_leave_judge(&use, SINCE), AGENT_LEAVES_ASKED);
    cr_assert_not(agent_drains_at_end(&use, SINCE), "what trainers commit now is not waited for");
}

Test(agent_leave, waits_for_the_drain_within_the_grace_of_the_system)
{
    struct agent_use use = asked();
    cr_assert(agent_drains_at_end(&use, SINCE));
    cr_assert_eq(agent_leave_judge(&use, SINCE + GRACE - 1), AGENT_IN_USE);
    cr_assert_eq(agent_leave_judge(&use, SINCE + GRACE), AGENT_LEAVES_ASKED);
    use.undrained = false;
    cr_assert_not(agent_drains_at_end(&use, SINCE), "a drain is wanted already");
    cr_assert_eq(agent_leave_judge(&use, SINCE), AGENT_IN_USE);
    use.grace_ms = 0;
    cr_assert_eq(agent_leave_judge(&use, SINCE), AGENT_LEAVES_ASKED);
}

Test(agent_leave, comes_by_force_during_the_grace)
{
    struct agent_use use = asked();
    use.stop_forced = true;
    cr_assert_eq(agent_leave_judge(&use, SINCE), AGENT_LEAVES_STOPPED);
}

/* ---- others cannot connect --------------------------------------------------------------------------------------- */

static struct agent_hearing deaf(void)
{
    return (struct agent_hearing){.kept = true, .since_ms = SINCE};
}

Test(agent_deaf, one_that_listens_or_leaves_soon_is_not)
{
    struct agent_hearing listening = deaf(), leaving = deaf();
    listening.listening = true;
    leaving.job_done = true;
    cr_assert_eq(agent_deaf_judge(&listening, SINCE + AGENT_DEAF_MS), AGENT_HEARS);
    cr_assert_eq(agent_deaf_judge(&leaving, SINCE + AGENT_DEAF_MS), AGENT_HEARS);
}

Test(agent_deaf, one_that_is_deaf_ends_after_a_time)
{
    struct agent_hearing hearing = deaf();
    hearing.since_ms = 0;
    cr_assert_eq(agent_deaf_judge(&hearing, SINCE), AGENT_TURNS_DEAF);
    hearing.since_ms = SINCE;
    cr_assert_eq(agent_deaf_judge(&hearing, SINCE + AGENT_DEAF_MS - 1), AGENT_STAYS_DEAF);
    cr_assert_eq(agent_deaf_judge(&hearing, SINCE + AGENT_DEAF_MS), AGENT_ENDS_DEAF);
}

Test(agent_deaf, one_whose_memory_would_go_with_it_stays)
{
    struct agent_hearing hearing = deaf();
    hearing.kept = false;
    cr_assert_eq(agent_deaf_judge(&hearing, SINCE + AGENT_DEAF_MS), AGENT_STAYS_DEAF);
}
