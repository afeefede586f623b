/* SPDX-License-Identifier: Apache-2.0
 * Breaks a text into the rows of a screen. */
#include "cli/screen_rows.h"

#include <string.h>

/* Bytes of the first cols characters of a line. Each byte of a text that is not UTF-8 counts as a character. */
static size_t piece(const char *line, size_t len, size_t cols)
{
    size_t at = 0;
    for (size_t count = 0; at < len && count < cols; count++) {
        at++;
        while (at < len && ((unsigned char)line[at] & 0xc0) == 0x80) { /* the rest of a character */
            at++;
        }
    }
    return at;
}

/* The rows that the line takes; 0: it does not fit. */
static size_t put_line(const char *line, size_t len, size_t cols, struct screen_row *rows, size_t max)
{
    static const char *const starts[] = {"WARNING", "no answer"};
    bool warns = false;
    size_t count = 0;
    for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++) {
        warns = warns || strncmp(line, starts[i], strlen(starts[i])) == 0;
    }
    do {
        size_t some = piece(line, len, cols);
        if (count == max) {
            return 0;
        }
        rows[count++] = (struct screen_row){line, some, warns};
        line += some;
        len -= some;
    } while (warns && len > 0);
    return count;
}

static size_t fill(const char *text, size_t cols, struct screen_row *rows, size_t max, size_t *left_out)
{
    size_t count = 0;
    *left_out = 0;
    while (*text != '\0') {
        size_t len = strcspn(text, "\n");
        size_t used = *left_out == 0 ? put_line(text, len, cols, rows + count, max - count) : 0;
        count += used;
        *left_out += used == 0;
        text += len + (text[len] == '\n');
    }
    return count;
}

size_t screen_rows(const char *text, size_t cols, struct screen_row *rows, size_t max, size_t *left_out)
{
    cols = cols > 0 ? cols : 1;
    size_t count = fill(text, cols, rows, max, left_out);
    return *left_out > 0 && max > 0 ? fill(text, cols, rows, max - 1, left_out) : count;
}
