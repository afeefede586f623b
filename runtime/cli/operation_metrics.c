/* SPDX-License-Identifier: Apache-2.0
 * Writes the metrics of a command into its file. What the file says of the last run is kept until this one has ended,
 * so that an alert about it does not pause meanwhile, and still stands if this run never ends. */
#include "cli/operation_metrics.h"

#include "base/clock.h"
#include "base/metrics_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WRITE_EVERY_MS 1000

/* "" if there is no file yet, or none that can be read: then nothing is known of the last run. */
static void read_old(const char *path, char *text, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t len = fd >= 0 ? read(fd, text, cap - 1) : -1;
    text[len > 0 ? len : 0] = '\0';
    if (fd >= 0) {
        close(fd);
    }
}

static tck_status_t write_now(struct operation_metrics *m, uint64_t now_ms, struct error *err)
{
    size_t len;
    m->figures.now_wall_ms = clock_wall_ms();
    m->written_ms = now_ms;
    char *text = operation_text(&m->figures, &len);
    if (text == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "--metrics-textfile: out of memory");
    }
    tck_status_t status = metrics_file_write(m->path, text, len, err);
    free(text);
    return status == TCK_OK ? TCK_OK : error_prefix(err, "--metrics-textfile");
}

/* A warning, once for each reason: the command itself matters more. */
static void write_or_warn(struct operation_metrics *m, uint64_t now_ms)
{
    struct error why = {0};
    if (write_now(m, now_ms, &why) != TCK_OK && strcmp(why.text, m->trouble.text) != 0) {
        log_warn("%s", why.text);
    }
    m->trouble = why;
}

tck_status_t operation_metrics_begin(const struct cli *cli, struct operation_metrics *out, struct error *err)
{
    static char old[OPERATION_TEXT_MAX];
    *out = (struct operation_metrics){.path = cli->metrics_textfile, .begun_ms = clock_ms()};
    if (out->path == NULL) {
        return TCK_OK;
    }
    if (metrics_file_check_name(out->path, err) != TCK_OK) {
        return error_prefix(err, "--metrics-textfile");
    }
    struct operation_figures *figures = &out->figures;
    figures->job = cli->config.job;
    figures->node = cli->config.node;
    figures->operation = cli->command;
    figures->verifies = strcmp(cli->command, "verify") == 0;
    figures->age_ms = 1; /* 0: not under way */
    read_old(out->path, old, sizeof(old));
    figures->last = operation_text_outcome(old, figures);
    return write_now(out, out->begun_ms, err);
}

void operation_metrics_note(struct operation_metrics *m, const struct progress_line *line)
{
    uint64_t read, written;
    if (m == NULL || m->path == NULL) {
        return;
    }
    progress_line_bytes(line, &read, &written);
    if (read + written > 0) {
        m->figures.read_bytes = read;
        m->figures.written_bytes = written;
    }
}

void operation_metrics_show(struct operation_metrics *m, const struct progress_line *line)
{
    uint64_t now_ms = clock_ms();
    if (m == NULL || m->path == NULL || now_ms - m->written_ms < WRITE_EVERY_MS) {
        return;
    }
    operation_metrics_note(m, line);
    m->figures.age_ms = now_ms - m->begun_ms;
    m->figures.quiet_ms = now_ms - line->moved_ms;
    write_or_warn(m, now_ms);
}

void operation_metrics_end(struct operation_metrics *m, const struct operation_outcome *outcome)
{
    if (m->path == NULL) {
        return;
    }
    m->figures.last = *outcome;
    m->figures.last.values[OUTCOME_ENDED_MS] = clock_wall_ms();
    m->figures.age_ms = m->figures.quiet_ms = 0;
    write_or_warn(m, clock_ms());
}
