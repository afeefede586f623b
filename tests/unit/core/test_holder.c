/* SPDX-License-Identifier: Apache-2.0
 * Which start may begin a term while trainers of others may be alive. */
#include "core/holder.h"
#include <criterion/criterion.h>

static struct holder_trainer training(void)
{
    return (struct holder_trainer){.term = 7, .alive = true};
}

Test(holder, a_live_trainer_of_another_run_counts)
{
    struct holder_trainer t = training();
    cr_assert(holder_counts(&t, 7));
    cr_assert(holder_counts(&t, 5), "a later term was claimed and never joined");
}

Test(holder, the_dead_and_the_detached_do_not_count)
{
    struct holder_trainer dead = training(), done = training();
    dead.alive = false;
    done.done = true;
    cr_assert_not(holder_counts(&dead, 7));
    cr_assert_not(holder_counts(&done, 7));
}

Test(holder, trainers_whose_term_is_over_do_not_count)
{
    struct holder_trainer t = training(), newcomer = training();
    cr_assert_not(holder_counts(&t, 8));
    newcomer.term = 0;
    cr_assert_not(holder_counts(&newcomer, 0));
}

Test(holder, a_process_that_comes_along_does_not_count)
{
    struct holder_trainer t = training();
    t.arrives = true;
    cr_assert_not(holder_counts(&t, 7));
}

Test(holder, the_same_launchers_trainers_do_not_count_unless_they_started_the_one_that_asks)
{
    struct holder_trainer t = training();
    t.same_run = true;
    cr_assert_not(holder_counts(&t, 7));
    t.ancestor = true;
    cr_assert(holder_counts(&t, 7), "an evaluation that a trainer starts inherits its run id");
}

Test(holder, a_start_waits_for_answers_and_then_goes_on)
{
    struct holder_claim c = {.newest = 3, .silent = 1};
    cr_assert_eq(holder_judge(&c), HOLDER_WAIT);
    c.since_ms = HOLDER_ANSWER_MS;
    cr_assert_eq(holder_judge(&c), HOLDER_FREE, "agents that cannot be reached do not hold recovery up");
    c = (struct holder_claim){.newest = 3};
    cr_assert_eq(holder_judge(&c), HOLDER_FREE);
}

Test(holder, a_start_waits_for_trainers_that_end_and_is_refused_if_they_do_not)
{
    struct holder_claim c = {.newest = 3, .held = 1};
    cr_assert_eq(holder_judge(&c), HOLDER_WAIT);
    c.since_ms = HOLDER_END_MS;
    cr_assert_eq(holder_judge(&c), HOLDER_HELD);
    c.held = 0;
    cr_assert_eq(holder_judge(&c), HOLDER_FREE);
}

Test(holder, a_start_is_refused_while_a_second_agent_runs_on_a_node)
{
    struct holder_claim c = {.newest = 3, .second = true};
    cr_assert_eq(holder_judge(&c), HOLDER_SECOND);
    c.silent = 1;
    cr_assert_eq(holder_judge(&c), HOLDER_WAIT, "trainers may be alive, whose error says more");
    c.takeover = true;
    cr_assert_eq(holder_judge(&c), HOLDER_FREE);
    c = (struct holder_claim){.after = 3, .newest = 3, .second = true};
    cr_assert_eq(holder_judge(&c), HOLDER_FREE, "a trainer that has a term knows its agents");
}

Test(holder, a_takeover_does_not_ask)
{
    struct holder_claim c = {.newest = 3, .held = 1, .silent = 1, .takeover = true};
    cr_assert_eq(holder_judge(&c), HOLDER_FREE);
}

Test(holder, one_that_has_a_term_goes_on_from_it_alone)
{
    struct holder_claim c = {.after = 3, .newest = 3, .held = 1, .silent = 1};
    cr_assert_eq(holder_judge(&c), HOLDER_FREE);
    c.newest = 4;
    cr_assert_eq(holder_judge(&c), HOLDER_SUPERSEDED);
    c.takeover = true;
    cr_assert_eq(holder_judge(&c), HOLDER_SUPERSEDED, "a start that was taken over does not take it back");
    c.newest_ours = true;
    cr_assert_eq(holder_judge(&c), HOLDER_FREE, "it had claimed that one itself and was not told");
}

Test(holder, every_claim_has_time_to_name_its_holder)
{
    struct holder_unnamed unnamed = {0};
    cr_assert(holder_may_be_written(&unnamed, 3, false, 1000));
    cr_assert_not(holder_may_be_written(&unnamed, 3, false, 1000 + HOLDER_WRITE_MS));
    cr_assert(holder_may_be_written(&unnamed, 4, false, 1000 + HOLDER_WRITE_MS), "made by another start meanwhile");
    cr_assert_not(holder_may_be_written(&unnamed, 4, true, 1000 + HOLDER_WRITE_MS), "it names its holder");
}
