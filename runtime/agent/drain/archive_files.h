/* SPDX-License-Identifier: Apache-2.0
 * Copies the files that this node drains of one version to archive_dir, in pool threads. */
#ifndef TCK_AGENT_ARCHIVE_FILES_H
#define TCK_AGENT_ARCHIVE_FILES_H

#include "base/status.h"
#include "base/version.h"

#include <stdbool.h>
#include <stdint.h>

struct archive;
struct archive_files;
struct pool;
struct term_context;

#define ARCHIVE_FILES_THREADS 4

struct archive_files_result {
    struct error outcome;
    bool stopped;          /* archive_files_stop was called, or the agent is exiting: the outcome is no failure */
    uint64_t files, bytes; /* copied, whatever the outcome */
};
typedef void archive_files_done_fn(void *ctx, const struct archive_files_result *result);

/* In the loop's thread. done is called later, in the same thread, and frees *out. NULL: no memory. What is copied does
 * not refer to the term's context, since the term may be over before the archive answers. */
struct archive_files *archive_files_begin(struct archive *archive, struct pool *pool, struct version version,
                                          const struct term_context *tc, archive_files_done_fn *done, void *ctx);
/* It ends after the chunks that are being copied. */
void archive_files_stop(struct archive_files *files);
/* When it began (clock_ms). */
uint64_t archive_files_since_ms(const struct archive_files *files);

#endif
