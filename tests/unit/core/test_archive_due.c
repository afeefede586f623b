/* SPDX-License-Identifier: Apache-2.0
 * When a published version is copied to the archive. */
#include "core/archive_due.h"

#include <criterion/criterion.h>

static bool by_steps(uint64_t every, struct version published, struct version archived)
{
    const struct archive_due due = {.every_steps = every, .published = published, .archived = archived};
    return archive_is_due(&due);
}

Test(archive_due, the_first_version_past_each_multiple_of_the_interval_is)
{
    cr_assert_not(by_steps(100, (struct version){1, 90}, VERSION_NONE));
    cr_assert(by_steps(100, (struct version){1, 120}, VERSION_NONE));
    cr_assert_not(by_steps(100, (struct version){1, 150}, (struct version){1, 120}));
    cr_assert(by_steps(100, (struct version){1, 210}, (struct version){1, 120}));
    cr_assert(by_steps(100, (struct version){2, 210}, (struct version){1, 120}), "in a later term, too");
}

Test(archive_due, nothing_is_without_an_interval_or_a_new_version)
{
    cr_assert_not(by_steps(0, (struct version){1, 500}, VERSION_NONE));
    cr_assert_not(by_steps(100, VERSION_NONE, VERSION_NONE));
    cr_assert_not(by_steps(100, (struct version){1, 200}, (struct version){1, 200}));
    cr_assert_not(by_steps(100, (struct version){1, 300}, (struct version){2, 200}), "of a term that is over");
}

Test(archive_due, a_version_of_another_line_of_history_is_at_once)
{
    cr_assert(by_steps(100, (struct version){2, 60}, (struct version){1, 200}));
}

Test(archive_due, with_an_interval_in_time_the_next_one_after_it_has_passed_is)
{
    struct archive_due due = {.every_ms = 1000, .published = {1, 10}};
    cr_assert(archive_is_due(&due), "the archive is empty");
    due.archived = (struct version){1, 5};
    due.archived_wall_ms = 5000;
    due.now_wall_ms = 5999;
    cr_assert_not(archive_is_due(&due));
    due.now_wall_ms = 6000;
    cr_assert(archive_is_due(&due));
    due.now_wall_ms = 4000;
    cr_assert_not(archive_is_due(&due), "the clock was set back");
}

Test(archive_due, the_pause_after_failures_grows_to_an_end)
{
    cr_assert_eq(archive_pause_ms(1), 10000);
    cr_assert_eq(archive_pause_ms(2), 20000);
    cr_assert_eq(archive_pause_ms(7), 640000);
    cr_assert_eq(archive_pause_ms(1000), 640000);
}
