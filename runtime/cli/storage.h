/* SPDX-License-Identifier: Apache-2.0
 * The command's own access to storage: it needs no agent, and does not hang if storage does. */
#ifndef TCK_CLI_STORAGE_H
#define TCK_CLI_STORAGE_H

#include "cli/cli.h"
#include "cli/operation_metrics.h"
#include "tiers/persistent.h"

enum storage_use { STORAGE_UNOPENED, STORAGE_READ, STORAGE_WRITE };

/* Runs in a separate process, so it can change nothing but storage; its result goes into answer. persistent is NULL for
 * STORAGE_UNOPENED. */
typedef tck_status_t storage_work_fn(const struct cli *cli, struct persistent *persistent, const void *ctx,
                                     json_t *answer, struct error *err);

struct storage_job {
    storage_work_fn *work;
    const void *ctx;
    enum storage_use use;
    const char
        *elsewhere; /* what else may hang; save_dir and the second place then have their own time limits. Or NULL */
    struct operation_metrics *metrics; /* show its progress; or NULL */
};

/* Runs the work; the caller frees the answer. TCK_ERR_NOENT: the job has nothing on storage (nothing is created then).
 * TCK_ERR_TIMEDOUT: no progress for storage_timeout_ms; the process is abandoned. */
must_check tck_status_t storage_do(const struct cli *cli, const struct storage_job *job, json_t **answer_out,
                                   struct error *err);

#endif
