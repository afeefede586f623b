/* SPDX-License-Identifier: Apache-2.0 */
#include "base/trouble.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct error full = {TCK_ERR_NOSPC, "/save/job: No space left on device"};
static const struct error stale = {TCK_ERR_IO, "/save/job: Stale file handle"};

Test(trouble, keeps_the_first_time_and_the_newest_reason)
{
    struct trouble t = {0};
    trouble_add(&t, 10, &full, 1000);
    trouble_add(&t, 20, &stale, 2000);
    cr_expect_eq(t.since_ms, 1000);
    cr_expect_eq(t.code, TCK_ERR_IO);
    cr_expect_str_eq(t.text, stale.text);
    cr_expect_eq(t.first_step, 10);
    cr_expect_eq(t.newest_step, 20);
    cr_expect_eq(t.steps, 2);
}

Test(trouble, a_step_that_fails_again_counts_once)
{
    struct trouble t = {0};
    trouble_add(&t, 10, &full, 1);
    trouble_add(&t, 10, &full, 2);
    trouble_add(&t, 0, &full, 3);
    cr_expect_eq(t.steps, 1);
    cr_expect_eq(t.newest_step, 10);
}

Test(trouble, an_error_that_kept_no_step_from_storage_counts_none)
{
    struct trouble t = {0};
    trouble_add(&t, 0, &full, 1);
    cr_expect_eq(t.steps, 0);
    cr_expect_eq(t.code, TCK_ERR_NOSPC);
    trouble_add(&t, 30, &full, 2);
    cr_expect_eq(t.first_step, 30);
}

Test(trouble, is_reported_and_read)
{
    static struct shared_trouble shared;
    struct trouble t = {0}, seen;
    cr_assert(trouble_look(&shared, &seen));
    cr_expect_eq(seen.code, TCK_OK);
    trouble_add(&t, 10, &full, 1000);
    trouble_show(&shared, &t);
    cr_assert(trouble_look(&shared, &seen));
    cr_expect_eq(seen.steps, 1);
    cr_expect_str_eq(seen.text, full.text);
}

Test(trouble, is_ignored_if_its_writer_died_while_writing)
{
    static struct shared_trouble shared;
    struct trouble seen;
    atomic_store(&shared.sequence, 7);
    cr_expect_not(trouble_look(&shared, &seen));
}

Test(trouble, an_unknown_code_is_refused)
{
    struct writer w = writer_new(0);
    write_u32(&w, 70000);
    struct reader r = reader_of(w.data, w.len);
    (void)read_trouble(&r);
    cr_expect_not(reader_done(&r));
    writer_free(&w);
}
