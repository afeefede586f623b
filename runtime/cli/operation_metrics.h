/* SPDX-License-Identifier: Apache-2.0
 * --metrics-textfile: the progress of a command that runs for long, and how its last run ended, in a file for
 * node_exporter. It stays when the command ends, since alerts need the end. */
#ifndef TCK_CLI_OPERATION_METRICS_H
#define TCK_CLI_OPERATION_METRICS_H

#include "cli/cli.h"
#include "cli/operation_text.h"
#include "cli/progress_line.h"

struct operation_metrics {
    const char *path; /* NULL: no file is wanted, and all calls do nothing */
    struct operation_figures figures;
    uint64_t begun_ms, written_ms;
    struct error trouble; /* as shown last */
};

/* The command begins. Its configuration's texts are borrowed. An error: the file cannot be written. */
must_check tck_status_t operation_metrics_begin(const struct cli *cli, struct operation_metrics *out,
                                                struct error *err);
/* The line has been shown, or would have been on a terminal: writes the same if it is time. */
void operation_metrics_show(struct operation_metrics *m, const struct progress_line *line);
/* Notes what the process of the line has read and written, before that cannot be read any more. */
void operation_metrics_note(struct operation_metrics *m, const struct progress_line *line);
/* The command ends; outcome: without its time. A file that cannot be written is a warning. */
void operation_metrics_end(struct operation_metrics *m, const struct operation_outcome *outcome);

#endif
