/* SPDX-License-Identifier: Apache-2.0
 * What `tierckpt top` shows of a status that is larger than the screen. */
#include "cli/screen_rows.h"

#include <criterion/criterion.h>
#include <string.h>

#define ROWS 4

static struct screen_row rows[ROWS];
static size_t left_out;

static void expect_row(size_t i, const char *text, bool warns)
{
    cr_assert_eq(rows[i].len, strlen(text), "row %zu: %.*s", i, (int)rows[i].len, rows[i].text);
    cr_assert_eq(memcmp(rows[i].text, text, strlen(text)), 0, "row %zu: %.*s", i, (int)rows[i].len, rows[i].text);
    cr_assert_eq(rows[i].warns, warns, "row %zu", i);
}

Test(screen_rows, what_fits_is_shown_as_it_is)
{
    cr_assert_eq(screen_rows("a\n\nb\nc\n", 10, rows, ROWS, &left_out), 4);
    cr_assert_eq(left_out, 0);
    expect_row(0, "a", false);
    expect_row(1, "", false);
    expect_row(2, "b", false);
    expect_row(3, "c", false);
}

Test(screen_rows, a_line_is_cut_and_a_warning_is_continued)
{
    cr_assert_eq(screen_rows("node abcdefgh\nWARNING: abcdefgh\nb", 10, rows, ROWS, &left_out), 4);
    cr_assert_eq(left_out, 0);
    expect_row(0, "node abcde", false);
    expect_row(1, "WARNING: a", true);
    expect_row(2, "bcdefgh", true);
    expect_row(3, "b", false);
}

Test(screen_rows, what_does_not_fit_is_counted_and_leaves_a_row_to_say_so)
{
    cr_assert_eq(screen_rows("a\nb\nc\nd\ne\n", 10, rows, ROWS, &left_out), 3);
    cr_assert_eq(left_out, 2);
    expect_row(2, "c", false);
}

Test(screen_rows, a_warning_that_does_not_fit_is_left_out_as_a_whole)
{
    cr_assert_eq(screen_rows("a\nb\nno answer: abcdef\nc\n", 10, rows, ROWS, &left_out), 2);
    cr_assert_eq(left_out, 2);
}

Test(screen_rows, characters_are_not_broken)
{
    cr_assert_eq(screen_rows("WARNING: \xc3\xa9\xc3\xa9", 10, rows, ROWS, &left_out), 2);
    expect_row(0, "WARNING: \xc3\xa9", true);
    expect_row(1, "\xc3\xa9", true);
}

Test(screen_rows, a_screen_without_rows_or_columns_shows_nothing_more)
{
    cr_assert_eq(screen_rows("a\nb\n", 10, rows, 0, &left_out), 0);
    cr_assert_eq(left_out, 2);
    cr_assert_eq(screen_rows("ab\n", 0, rows, ROWS, &left_out), 1);
    expect_row(0, "a", false);
}
