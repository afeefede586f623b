/* SPDX-License-Identifier: Apache-2.0
 * Not even a signal may end a call to storage that hangs, and the process that has made it cannot exit. So the command
 * makes such calls in a child, which reports its progress and in the end its result over a pipe. A child without
 * progress for too long is abandoned. It has none of the command's descriptors, since a process that reads the
 * command's output would wait for it. */
#include "cli/storage.h"

#include "base/clock.h"
#include "base/progress.h"
#include "cli/progress_line.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define REPORT_FD  3    /* in the child */
#define GRACE_MS   2000 /* for work with its own time limit, whose error has more detail */
#define READ_BYTES 65536

static const char MOVED = '\0'; /* never part of JSON text */

/* ---- in the child ---------------------------------------------------------------------------------------------- */

static void storage_moved(void)
{
    if (write(REPORT_FD, &MOVED, 1) < 0) {
        _exit(1); /* the parent no longer waits */
    }
}

static void keep_line(void *ctx, enum log_level level, const char *text)
{
    json_t *line = json_object();
    json_add_u64(line, "level", level);
    json_add_str(line, "text", text);
    json_add(ctx, NULL, line);
}

static void keep_only(int fd)
{
    int nowhere = open("/dev/null", O_RDWR);
    for (int i = 0; i < REPORT_FD; i++) {
        dup2(nowhere, i);
    }
    dup2(fd, REPORT_FD);
    close_range(REPORT_FD + 1, ~0U, 0);
}

static tck_status_t open_storage(const struct cli *cli, enum storage_use use, struct persistent **out,
                                 struct error *err)
{
    struct persistent_setup setup = {.config = &cli->config, .only_reads = true};
    tck_status_t status = persistent_new(&setup, out, err);
    if (status != TCK_OK || use == STORAGE_READ) {
        return status;
    }
    persistent_free(*out); /* it exists, so that opening it creates nothing */
    *out = NULL;
    setup.only_reads = false;
    return persistent_new(&setup, out, err);
}

static tck_status_t do_work(const struct cli *cli, const struct storage_job *job, json_t *answer, struct error *err)
{
    struct persistent *persistent = NULL;
    tck_status_t status = job->use == STORAGE_UNOPENED ? TCK_OK : open_storage(cli, job->use, &persistent, err);
    if (status == TCK_OK) {
        status = job->work(cli, persistent, job->ctx, answer, err);
    }
    persistent_free(persistent);
    return status;
}

static void report(const char *text)
{
    size_t left = text == NULL ? 0 : strlen(text);
    while (left > 0) {
        ssize_t n = write(REPORT_FD, text, left);
        if (n < 0 && errno != EINTR) {
            return;
        }
        text += n > 0 ? n : 0;
        left -= n > 0 ? (size_t)n : 0;
    }
}

static void run_child(const struct cli *cli, const struct storage_job *job, int fd)
{
    struct error err = {0};
    json_t *told = json_object(), *answer = json_object(), *lines = json_array();
    log_close();
    log_hand(keep_line, lines, LOG_WARN);
    keep_only(fd);
    progress_watch(storage_moved);
    tck_status_t status = do_work(cli, job, answer, &err);
    log_hand(NULL, NULL, LOG_ERROR);
    json_add_u64(told, "code", (uint64_t)-status);
    json_add_str(told, "error", status == TCK_OK ? "" : err.text);
    json_add(told, "answer", answer);
    json_add(told, "lines", lines);
    report(json_print(told, false));
    close(REPORT_FD); /* a thread that hangs in storage would otherwise keep it open */
    _exit(0);
}

/* ---- in the command -------------------------------------------------------------------------------------------- */

struct report {
    struct progress_line line;
    struct operation_metrics *metrics;
    int fd;
    char *text;
    size_t len;
};

static tck_status_t take(struct report *report, const char *bytes, size_t count, struct error *err)
{
    char *grown = realloc(report->text, report->len + count + 1);
    if (grown == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the result of reading storage");
    }
    report->text = grown;
    for (size_t i = 0; i < count; i++) {
        report->text[report->len] = bytes[i];
        report->len += bytes[i] != MOVED;
    }
    return TCK_OK;
}

static tck_status_t hung(const struct config *config, const struct storage_job *job, struct error *err)
{
    if (job->elsewhere != NULL) {
        return error_set(err, TCK_ERR_TIMEDOUT, "%s has not answered for %u ms (storage_timeout_ms)", job->elsewhere,
                         config->storage_timeout_ms);
    }
    return error_set(err, TCK_ERR_TIMEDOUT,
                     "storage hangs: save_dir %s%s%s has not answered for %u ms (storage_timeout_ms)", config->save_dir,
                     config_second_dir(config)[0] == '\0' ? ""
                     : config->archive_dir[0] != '\0'     ? ", or archive_dir "
                                                          : ", or load_dir ",
                     config_second_dir(config), config->storage_timeout_ms);
}

/* Waits for bytes of the report; 0: none came for limit_ms. */
static int await(struct report *report, uint64_t limit_ms)
{
    struct pollfd wait = {.fd = report->fd, .events = POLLIN};
    uint64_t begun_ms = clock_ms(), waited_ms = 0;
    int ready = 0;
    while (ready == 0 && waited_ms < limit_ms) {
        uint64_t left_ms = limit_ms - waited_ms;
        ready = poll(&wait, 1, left_ms < PROGRESS_LINE_MS ? (int)left_ms : PROGRESS_LINE_MS);
        progress_line_show(&report->line, ready > 0);
        operation_metrics_show(report->metrics, &report->line);
        waited_ms = clock_ms() - begun_ms;
    }
    return ready;
}

/* Reads the child's report to its end. */
static tck_status_t hear(const struct config *config, const struct storage_job *job, struct report *report,
                         struct error *err)
{
    uint32_t limit_ms = config->storage_timeout_ms + (job->elsewhere != NULL ? GRACE_MS : 0);
    static char bytes[READ_BYTES];
    for (;;) {
        int ready = await(report, limit_ms);
        if (ready == 0) {
            return hung(config, job, err);
        }
        ssize_t n = ready < 0 ? -1 : read(report->fd, bytes, sizeof(bytes));
        if (n < 0 && errno != EINTR) {
            return error_set(err, status_of_errno(errno), "read the result from the process that reads storage: %m");
        }
        if (n == 0) {
            return TCK_OK;
        }
        tck_status_t status = n < 0 ? TCK_OK : take(report, bytes, (size_t)n, err);
        if (status != TCK_OK) {
            return status;
        }
    }
}

static void repeat_lines(const json_t *lines)
{
    for (const json_t *line = json_first(lines); line != NULL; line = json_next(line)) {
        log_write((enum log_level)number_of(line, "level"), "%s", text_of(line, "text"));
    }
}

/* Returns the report's answer as a separate tree. */
static tck_status_t parse_report(const struct report *report, json_t **answer_out, struct error *err)
{
    json_t *told = NULL;
    if (report->len == 0) {
        return error_set(err, TCK_ERR_INTERNAL, "the process that reads storage has died");
    }
    tck_status_t status = json_parse(report->text, report->len, &told, err);
    if (status != TCK_OK) {
        return error_prefix(err, "the result of reading storage");
    }
    repeat_lines(json_get(told, "lines"));
    tck_status_t found = (tck_status_t) - (int)number_of(told, "code");
    if (found != TCK_OK) {
        status = error_set(err, found, "%s", text_of(told, "error"));
    } else {
        char *text = json_print(json_get(told, "answer"), false);
        status = text == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory for the result of reading storage")
                              : json_parse(text, strlen(text), answer_out, err);
        free(text);
    }
    json_free(told);
    return status;
}

tck_status_t storage_do(const struct cli *cli, const struct storage_job *job, json_t **answer_out, struct error *err)
{
    struct report report = {.metrics = job->metrics};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) {
        return error_set(err, status_of_errno(errno), "make a pipe: %m");
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        run_child(cli, job, ends[1]);
    }
    tck_status_t status =
        child < 0 ? error_set(err, status_of_errno(errno), "start a process that reads storage: %m") : TCK_OK;
    report.fd = ends[0];
    close(ends[1]);
    if (status == TCK_OK) {
        report.line = progress_line_begin(cli->command, child);
        status = hear(&cli->config, job, &report, err);
        operation_metrics_note(report.metrics, &report.line);
        progress_line_end(&report.line);
    }
    if (child > 0 && status != TCK_OK) {
        kill(child, SIGKILL); /* a call that hangs may delay its death */
    }
    close(ends[0]);
    if (status == TCK_OK) {
        waitpid(child, NULL, WNOHANG); /* a thread that hangs in storage may still delay its exit */
        status = parse_report(&report, answer_out, err);
    }
    free(report.text);
    return status;
}
