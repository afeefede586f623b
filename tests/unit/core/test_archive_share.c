/* SPDX-License-Identifier: Apache-2.0
 * A node's part in copies to the archive. */
#include "core/archive_share.h"

#include <criterion/criterion.h>

static struct archive_share share;
static uint64_t now_ms;

static const struct version one = {5, 10}, two = {5, 20};

static void begin(void)
{
    share = (struct archive_share){0};
    now_ms = 1000000;
    archive_share_begin(&share, 5);
}

TestSuite(archive_share, .init = begin);

static void expect_step(enum archive_share_step step)
{
    cr_assert_eq(archive_share_next(&share, now_ms), step, "%d", (int)archive_share_next(&share, now_ms));
}

static void begin_copy_of(struct version version)
{
    archive_share_want(&share, version, now_ms);
    expect_step(SHARE_COPY);
    archive_share_begun(&share);
    expect_step(SHARE_WAIT);
}

static struct archive_share_effects end_copy(enum archive_end end)
{
    return archive_share_ended(&share, end, share.term, now_ms);
}

Test(archive_share, what_is_wanted_is_copied_once_and_reported_until_something_else_is)
{
    expect_step(SHARE_WAIT);
    begin_copy_of(one);
    struct archive_share_effects effects = end_copy(ARCHIVE_DONE);
    cr_assert(effects.works && effects.report && !effects.failed);
    expect_step(SHARE_REPORT);
    expect_step(SHARE_REPORT);
    archive_share_want(&share, VERSION_NONE, now_ms);
    expect_step(SHARE_WAIT);
    archive_share_want(&share, one, now_ms);
    expect_step(SHARE_COPY); /* what others have left may have been removed meanwhile */
}

Test(archive_share, a_copy_that_fails_is_reported_and_repeated_after_pauses_that_grow)
{
    archive_share_want(&share, one, now_ms);
    for (uint64_t pause_ms = 10000; pause_ms < 100000; pause_ms *= 2) {
        begin_copy_of(one);
        struct archive_share_effects effects = end_copy(ARCHIVE_FAILED);
        cr_assert(effects.failed && effects.report && !effects.works);
        now_ms += pause_ms - 1;
        expect_step(SHARE_WAIT);
        now_ms++;
    }
    begin_copy_of(one);
    (void)end_copy(ARCHIVE_DONE);
    cr_assert_eq(share.failures, 0);
}

Test(archive_share, a_copy_that_is_no_longer_wanted_is_ended_and_may_fail)
{
    begin_copy_of(one);
    archive_share_want(&share, two, now_ms);
    expect_step(SHARE_STOP);
    struct archive_share_effects effects = end_copy(ARCHIVE_FAILED);
    cr_assert(!effects.failed && !effects.report);
    expect_step(SHARE_COPY); /* the next one, at once */
    cr_assert(version_is(share.wanted, two));
}

Test(archive_share, a_copy_of_an_older_term_is_ended_and_not_reported)
{
    begin_copy_of(one);
    archive_share_begin(&share, 6);
    expect_step(SHARE_STOP);
    archive_share_want(&share, one, now_ms);
    expect_step(SHARE_STOP);
    struct archive_share_effects effects = end_copy(ARCHIVE_DONE);
    cr_assert(!effects.report);
    expect_step(SHARE_COPY);
}

Test(archive_share, a_copy_that_ends_when_its_term_is_over_but_no_other_has_begun_is_not_reported)
{
    begin_copy_of(one);
    struct archive_share_effects effects = archive_share_ended(&share, ARCHIVE_DONE, 0, now_ms);
    cr_assert(!effects.report);
}

Test(archive_share, a_copy_that_was_canceled_says_nothing)
{
    begin_copy_of(one);
    struct archive_share_effects effects = end_copy(ARCHIVE_CANCELED);
    cr_assert(!effects.report && !effects.failed && !effects.works);
    cr_assert_eq(share.failures, 0);
}

Test(archive_share, a_copy_that_cannot_begin_waits)
{
    archive_share_want(&share, one, now_ms);
    archive_share_unable(&share, now_ms);
    expect_step(SHARE_WAIT);
    now_ms += 10000;
    expect_step(SHARE_COPY);
}

Test(archive_share, files_are_owed_for_a_while)
{
    cr_assert_not(archive_share_owes(&share, 1000, now_ms));
    archive_share_want(&share, one, now_ms);
    cr_assert(archive_share_owes(&share, 1000, now_ms + 999));
    cr_assert_not(archive_share_owes(&share, 1000, now_ms + 1000));
    archive_share_begun(&share);
    (void)end_copy(ARCHIVE_DONE);
    cr_assert_not(archive_share_owes(&share, 1000, now_ms));
}
