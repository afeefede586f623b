/* SPDX-License-Identifier: Apache-2.0
 * What another program says. For processes that have one thread. */
#ifndef TCK_BASE_PROGRAM_H
#define TCK_BASE_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A variable that the program gets beside those of this process. */
struct program_variable {
    const char *name, *value;
};

/* Runs argv (argv[0] is a path) and takes the first line of its output. variables ends with a NULL name; NULL: none.
 * False: the program cannot be run, has failed, says nothing or has not ended in time; then it is killed. Its errors
 * are not shown. */
bool program_line(const char *const *argv, const struct program_variable *variables, uint32_t timeout_ms, char *out,
                  size_t cap);

#endif
