/* SPDX-License-Identifier: Apache-2.0
 * The metrics of an agent: a report as text for Prometheus. Pure. docs/metrics.md lists them. */
#ifndef TCK_AGENT_METRICS_TEXT_H
#define TCK_AGENT_METRICS_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct report;

#define METRICS_TEXT_MAX (256u << 10) /* bytes; that of a large world has about 20 KiB */

/* The caller frees the text, which has no NUL. NULL: out of memory. */
char *metrics_text(const struct report *report, size_t *len_out);

/* The table, for printing: i from 0 until false. Every metric has the labels job_id and node, too. */
struct metrics_help {
    const char *name, *labels, *kind, *help;
};
bool metrics_family(size_t i, struct metrics_help *out);

#endif
