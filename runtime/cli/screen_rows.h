/* SPDX-License-Identifier: Apache-2.0
 * What of a text fits on a screen. Pure. */
#ifndef TCK_CLI_SCREEN_ROWS_H
#define TCK_CLI_SCREEN_ROWS_H

#include <stdbool.h>
#include <stddef.h>

struct screen_row {
    const char *text; /* in the text that is shown */
    size_t len;       /* bytes */
    bool warns;
};

/* Warnings take as many rows as they need, since their ends say what helps; other lines are cut after cols characters.
 * Returns how many of max rows are used. Lines that do not fit are counted in left_out; then one row is left free, to
 * say so. */
size_t screen_rows(const char *text, size_t cols, struct screen_row *rows, size_t max, size_t *left_out);

#endif
