/* SPDX-License-Identifier: Apache-2.0
 * A line on the terminal while a command runs for long: what it does, for how long, how many bytes it has read and
 * written, and since when nothing has moved. Without a terminal on standard error nothing is shown. */
#ifndef TCK_CLI_PROGRESS_LINE_H
#define TCK_CLI_PROGRESS_LINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PROGRESS_LINE_MS 1000 /* from one line to the next */

struct progress_line {
    const char *what;
    pid_t process; /* whose bytes are shown; 0: none are */
    uint64_t begun_ms, shown_ms, moved_ms;
    bool terminal;
};

struct progress_line progress_line_begin(const char *what, pid_t process);
/* moved: since the last call, something has. Shows the line if it is time. */
void progress_line_show(struct progress_line *line, bool moved);
/* What its process has read and written so far, as far as system calls show; zeros if there is none. */
void progress_line_bytes(const struct progress_line *line, uint64_t *read_out, uint64_t *written_out);
/* Erases the line. */
void progress_line_end(const struct progress_line *line);

#endif
