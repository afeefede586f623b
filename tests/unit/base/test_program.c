/* SPDX-License-Identifier: Apache-2.0 */
#include "base/program.h"

#include <criterion/criterion.h>
#include <string.h>

#define PATIENCE_MS 60000

static bool shell(const char *script, const struct program_variable *variables, char out[64])
{
    return program_line((const char *const[]){"/bin/sh", "-c", script, NULL}, variables, PATIENCE_MS, out, 64);
}

Test(program, says_the_first_line)
{
    char line[64];
    cr_assert(shell("echo one; echo two", NULL, line));
    cr_assert_str_eq(line, "one");
}

Test(program, gets_variables)
{
    char line[64];
    const struct program_variable variables[] = {{"TCK_TEST_WORD", "seven"}, {NULL, NULL}};
    cr_assert(shell("echo $TCK_TEST_WORD", variables, line));
    cr_assert_str_eq(line, "seven");
}

Test(program, that_fails_or_says_nothing_has_no_line)
{
    char line[64];
    cr_assert_not(shell("echo one; exit 3", NULL, line));
    cr_assert_not(shell(":", NULL, line));
    cr_assert_not(shell("kill -9 $$", NULL, line));
    cr_assert_not(
        program_line((const char *const[]){"/nonexistent/program", NULL}, NULL, PATIENCE_MS, line, sizeof(line)));
}

Test(program, that_writes_more_than_fits_is_read_to_its_end)
{
    char line[8];
    cr_assert(program_line((const char *const[]){"/bin/sh", "-c", "seq 1 100000 | tr '\\n' ' '; echo", NULL}, NULL,
                           PATIENCE_MS, line, sizeof(line)));
    cr_assert_str_eq(line, "1 2 3 4");
}

/* The shell becomes the program that hangs, so that nothing else has its output. */
Test(program, that_hangs_is_given_up, .timeout = 200)
{
    static const char *const scripts[] = {"exec sleep 600", "echo one; exec sleep 600",
                                          "echo one; exec sleep 600 >/dev/null"};
    for (size_t i = 0; i < sizeof(scripts) / sizeof(*scripts); i++) {
        char line[64];
        cr_assert_not(
            program_line((const char *const[]){"/bin/sh", "-c", scripts[i], NULL}, NULL, 300, line, sizeof(line)), "%s",
            scripts[i]);
    }
}
