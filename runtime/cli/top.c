/* SPDX-License-Identifier: Apache-2.0
 * tierckpt top: the status of a job, renewed each second, with what happens per second. The one file that sees
 * ncurses. */
#include "cli/cli.h"
#include "cli/rates.h"
#include "cli/screen_rows.h"

#include "base/clock.h"

#include <curses.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define EACH_MS    1000
#define ANSWER_MS  5000 /* an agent that hangs is said to */
#define BYTES_TEXT 32
#define ROWS_MAX   512

/* The answer before the last one, and when it came. */
struct previous {
    json_t *answer; /* owned; NULL: none yet */
    uint64_t at_ms;
};

static void write_rate(FILE *to, const char *what, double per_second)
{
    char text[BYTES_TEXT];
    text_bytes((uint64_t)per_second, text, sizeof(text));
    fprintf(to, ", %s %s/s", what, text);
}

static void write_rates(FILE *to, const struct rates *r)
{
    fprintf(to,
            "step %" PRIu64 ", %.1f steps/s, %.1f ms each, %" PRIu64 " since the newest commit, %" PRIu64
            " since the newest on storage\n",
            r->step, r->steps, r->step_ms, r->unsaved, r->undrained);
    fprintf(to, "%.1f saves/s", r->saves);
    if (r->stall_ms >= 0) {
        fprintf(to, " with a stall of %.2f ms", r->stall_ms);
    }
    write_rate(to, "digests", r->digested);
    write_rate(to, "copies sent", r->copied);
    write_rate(to, "received", r->received);
    write_rate(to, "to storage", r->stored);
    fprintf(to, "\n\n");
}

/* Asks, and replaces the answer before. Returns the text to show, which the caller frees; NULL: out of memory. */
static char *next_text(const struct cli *cli, struct previous *previous)
{
    char *text = NULL;
    size_t len = 0;
    json_t *answer = NULL;
    struct error err;
    FILE *to = open_memstream(&text, &len);
    if (to == NULL) {
        return NULL;
    }
    uint64_t now_ms = clock_ms();
    if (control_ask(&cli->config, "status", NULL, ANSWER_MS, &answer, &err) != TCK_OK) {
        fprintf(to, "no answer: %s\n", err.text);
    } else if (!flag_of(answer, "ok")) {
        fprintf(to, "no answer: %s\n", text_of(answer, "error"));
        json_free(answer);
        answer = NULL;
    }
    if (answer != NULL) {
        double seconds = (double)(now_ms - previous->at_ms) / 1e3;
        struct rates rates = rates_between(previous->answer, answer, seconds);
        write_rates(to, &rates);
        cli_write_status(to, answer);
    }
    json_free(previous->answer);
    *previous = (struct previous){.answer = answer, .at_ms = now_ms};
    fclose(to);
    return text;
}

static void show(const char *text)
{
    static struct screen_row rows[ROWS_MAX];
    size_t left_out, lines = LINES < ROWS_MAX ? (size_t)LINES : ROWS_MAX;
    size_t count = screen_rows(text, (size_t)COLS, rows, lines, &left_out);
    erase();
    for (size_t i = 0; i < count; i++) {
        if (rows[i].warns) {
            attron(A_BOLD);
        }
        mvaddnstr((int)i, 0, rows[i].text, (int)rows[i].len);
        attroff(A_BOLD);
    }
    if (left_out > 0) {
        mvprintw((int)count, 0, "%zu more lines: see tierckpt status", left_out);
    }
    refresh();
}

int cli_top(const struct cli *cli)
{
    struct previous previous = {0};
    struct error err;
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
        (void)error_set(&err, TCK_ERR_INVAL, "top needs a terminal; tierckpt status prints once, --json for programs");
        return cli_fail(cli, &err);
    }
    SCREEN *screen = newterm(NULL, stdout, stdin); /* initscr would exit on an error */
    if (screen == NULL) {
        (void)error_set(&err, TCK_ERR_UNSUPPORTED, "this terminal is not known to ncurses: set TERM");
        return cli_fail(cli, &err);
    }
    noecho();
    cbreak();
    curs_set(0);
    timeout(EACH_MS);
    do {
        char *text = next_text(cli, &previous);
        if (text != NULL) {
            show(text);
        }
        free(text);
    } while (getch() != 'q');
    endwin();
    delscreen(screen);
    json_free(previous.answer);
    return 0;
}
