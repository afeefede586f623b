/* SPDX-License-Identifier: Apache-2.0
 * The metrics of a command that runs for long (docs/metrics.md, Of commands): its progress, and how its last run ended.
 * Pure. */
#ifndef TCK_CLI_OPERATION_TEXT_H
#define TCK_CLI_OPERATION_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define OPERATION_TEXT_MAX (64u << 10) /* bytes; it has about 2 KiB */

/* How a run ended. */
enum outcome_value {
    OUTCOME_ENDED_MS, /* wall clock; 0: none has ended */
    OUTCOME_GOOD,
    OUTCOME_BAD, /* from here: of verify alone */
    OUTCOME_UNCHECKED,
    OUTCOME_VERSIONS,
    OUTCOME_SLOTS,
    OUTCOME_VALUES
};

struct operation_outcome {
    uint64_t values[OUTCOME_VALUES];
};

struct operation_figures {
    const char *job, *node, *operation;
    bool verifies;
    uint64_t now_wall_ms;
    uint64_t age_ms, quiet_ms; /* 0: it is not under way */
    uint64_t read_bytes, written_bytes;
    struct operation_outcome last;
};

/* The caller frees the text, which has no NUL. NULL: out of memory. */
char *operation_text(const struct operation_figures *figures, size_t *len_out);
/* What a text, with a NUL, says of the last run of this operation, job and node; zeros if it says nothing of it. */
struct operation_outcome operation_text_outcome(const char *text, const struct operation_figures *whose);
/* All of these metrics, as docs/metrics.md lists them. */
void operation_text_list(FILE *to);

#endif
