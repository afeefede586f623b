/* SPDX-License-Identifier: Apache-2.0
 * When a trainer's JOIN is answered, and when it is refused. */
#include "core/join.h"

#include <criterion/criterion.h>

#define LIMIT 10000

Test(join, is_answered_when_all_sessions_are_up)
{
    struct join_standing s = {.limit_ms = LIMIT};
    cr_assert_eq(join_judge(&s), JOIN_ANSWER);
    s.waited_ms = LIMIT;
    cr_assert_eq(join_judge(&s), JOIN_ANSWER);
    s.gone = true;
    cr_assert_eq(join_judge(&s), JOIN_ANSWER, "its successor is there");
}

Test(join, waits_for_sessions_and_is_refused_without_them)
{
    struct join_standing s = {.missing = true, .waited_ms = LIMIT - 1, .limit_ms = LIMIT};
    cr_assert_eq(join_judge(&s), JOIN_WAIT);
    s.waited_ms = LIMIT;
    cr_assert_eq(join_judge(&s), JOIN_REFUSE);
}

Test(join, is_refused_at_once_when_an_agent_of_the_term_is_gone)
{
    struct join_standing s = {.missing = true, .gone = true, .limit_ms = LIMIT};
    cr_assert_eq(join_judge(&s), JOIN_REFUSE);
}

Test(join, waits_for_the_check_of_save_dir_as_long_as_it_takes)
{
    struct join_standing s = {.checking = true, .waited_ms = LIMIT, .limit_ms = LIMIT};
    cr_assert_eq(join_judge(&s), JOIN_WAIT);
}

Test(join, is_refused_when_nodes_see_different_directories)
{
    struct join_standing s = {.unshared = true, .limit_ms = LIMIT};
    cr_assert_eq(join_judge(&s), JOIN_REFUSE);
}

Test(join, of_a_returning_trainer_is_answered_whatever_is_missing)
{
    struct join_standing s = {.missing = true,
                              .gone = true,
                              .checking = true,
                              .unshared = true,
                              .returning = true,
                              .waited_ms = LIMIT,
                              .limit_ms = LIMIT};
    cr_assert_eq(join_judge(&s), JOIN_ANSWER);
}
