/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

Test(status, error_set_keeps_code_and_text)
{
    struct error err;

    cr_assert_eq(error_set(&err, TCK_ERR_NOENT, "shard %d", 7), TCK_ERR_NOENT);
    cr_assert_eq(err.code, TCK_ERR_NOENT);
    cr_assert_str_eq(err.text, "shard 7");
}

Test(status, error_set_without_an_error_returns_the_code)
{
    cr_assert_eq(error_set(NULL, TCK_ERR_BUSY, "x"), TCK_ERR_BUSY);
}

Test(status, percent_m_is_the_errno_of_the_call_and_errno_stays)
{
    struct error err;
    char expected[128];

    snprintf(expected, sizeof(expected), "open: %s", strerror(ELOOP));
    errno = ELOOP;
    error_set(&err, TCK_ERR_IO, "open: %m");
    cr_assert_str_eq(err.text, expected);
    cr_assert_eq(errno, ELOOP);
}

Test(status, prefixes_are_in_the_order_from_caller_to_callee)
{
    struct error err;

    error_set(&err, TCK_ERR_IO, "write: no space");
    error_prefix(&err, "file %s", "a.bin");
    cr_assert_eq(error_prefix(&err, "drain"), TCK_ERR_IO);
    cr_assert_str_eq(err.text, "drain: file a.bin: write: no space");
}

Test(status, text_may_be_an_argument_of_its_own_error)
{
    struct error err;

    error_set(&err, TCK_ERR_IO, "inner");
    error_set(&err, TCK_ERR_CORRUPT, "outer (%s)", err.text);
    cr_assert_str_eq(err.text, "outer (inner)");
}

Test(status, long_texts_are_cut_at_the_end)
{
    struct error err;
    char text[2 * ERROR_TEXT_BYTES];

    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    error_set(&err, TCK_ERR_IO, "%s", text);
    cr_assert_eq(strlen(err.text), ERROR_TEXT_BYTES - 1);
    error_prefix(&err, "here");
    cr_assert_eq(strlen(err.text), ERROR_TEXT_BYTES - 1);
    cr_assert_eq(strncmp(err.text, "here: aaa", 9), 0);
    error_prefix(&err, "%s", text);
    cr_assert_eq(strlen(err.text), ERROR_TEXT_BYTES - 1);
}

Test(status, errno_values_map_to_what_callers_branch_on)
{
    cr_assert_eq(status_of_errno(ENOSPC), TCK_ERR_NOSPC);
    cr_assert_eq(status_of_errno(EDQUOT), TCK_ERR_NOSPC);
    cr_assert_eq(status_of_errno(ENOENT), TCK_ERR_NOENT);
    cr_assert_eq(status_of_errno(EPERM), TCK_ERR_DENIED);
    cr_assert_eq(status_of_errno(ECONNRESET), TCK_ERR_UNREACHABLE);
    cr_assert_eq(status_of_errno(EAGAIN), TCK_ERR_BUSY);
    cr_assert_eq(status_of_errno(EIO), TCK_ERR_IO);
    cr_assert_eq(status_of_errno(123456), TCK_ERR_IO);
}

Test(status, every_status_has_its_text)
{
    cr_assert_str_eq(status_text(TCK_OK), "success");
    cr_assert_str_eq(status_text(TCK_ERR_INTERNAL), "internal fault");
    cr_assert_not_null(status_text((tck_status_t)-1000));
}
