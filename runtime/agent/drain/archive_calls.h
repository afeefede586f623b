/* SPDX-License-Identifier: Apache-2.0
 * Makes the coordinator's calls to archive_dir (core/archive_lead.h), in a pool thread. */
#ifndef TCK_AGENT_ARCHIVE_CALLS_H
#define TCK_AGENT_ARCHIVE_CALLS_H

#include "base/status.h"
#include "core/archive_lead.h"

struct archive;
struct archive_job;
struct pool;

/* outcome: why it has failed. */
typedef void archive_call_done_fn(void *ctx, const struct archive_ask *ask, const struct archive_answer *answer,
                                  const struct error *outcome);

/* In the loop's thread. done is called later, in the same thread, and frees *out. NULL: no memory. */
struct archive_job *archive_call_begin(struct archive *archive, struct pool *pool, const struct archive_ask *ask,
                                       archive_call_done_fn *done, void *ctx);
/* When it began (clock_ms). */
uint64_t archive_call_since_ms(const struct archive_job *job);

#endif
