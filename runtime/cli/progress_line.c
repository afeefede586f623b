/* SPDX-License-Identifier: Apache-2.0
 * The line of a command that runs for long. */
#include "cli/progress_line.h"

#include "base/clock.h"
#include "cli/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define QUIET_MS 5000 /* without any progress for so long, the line says so */

struct progress_line progress_line_begin(const char *what, pid_t process)
{
    uint64_t now_ms = clock_ms();
    return (struct progress_line){.what = what,
                                  .process = process,
                                  .begun_ms = now_ms,
                                  .shown_ms = now_ms,
                                  .moved_ms = now_ms,
                                  .terminal = isatty(STDERR_FILENO)};
}

void progress_line_bytes(const struct progress_line *line, uint64_t *read_out, uint64_t *written_out)
{
    char path[32];
    *read_out = *written_out = 0;
    if (line->process == 0) {
        return;
    }
    snprintf(path, sizeof(path), "/proc/%d/io", (int)line->process); /* proc(5) */
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return;
    }
    if (fscanf(file, "rchar: %" SCNu64 "\nwchar: %" SCNu64, read_out, written_out) != 2) {
        *read_out = *written_out = 0;
    }
    fclose(file);
}

static void print_bytes(const struct progress_line *line)
{
    uint64_t read = 0, written = 0;
    char read_text[32], written_text[32];
    progress_line_bytes(line, &read, &written);
    text_bytes(read, read_text, sizeof(read_text));
    text_bytes(written, written_text, sizeof(written_text));
    fprintf(stderr, ", %s read, %s written", read_text, written_text);
}

void progress_line_show(struct progress_line *line, bool moved)
{
    uint64_t now_ms = clock_ms();
    line->moved_ms = moved ? now_ms : line->moved_ms;
    if (!line->terminal || now_ms - line->shown_ms < PROGRESS_LINE_MS) {
        return;
    }
    line->shown_ms = now_ms;
    fprintf(stderr, "\r\033[K%s: %" PRIu64 " s", line->what, (now_ms - line->begun_ms) / 1000);
    if (line->process != 0) {
        print_bytes(line);
    }
    if (now_ms - line->moved_ms >= QUIET_MS) {
        fprintf(stderr, ", without progress for %" PRIu64 " s", (now_ms - line->moved_ms) / 1000);
    }
    fflush(stderr);
}

void progress_line_end(const struct progress_line *line)
{
    if (line->terminal && line->shown_ms != line->begun_ms) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
}
