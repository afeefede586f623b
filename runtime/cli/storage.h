/* SPDX-License-Identifier: Apache-2.0
 * The command's own look at storage: it needs no agent for that, and does not hang with storage. */
#ifndef TCK_CLI_STORAGE_H
#define TCK_CLI_STORAGE_H

#include "cli/cli.h"
#include "tiers/persistent.h"

enum storage_use { STORAGE_UNOPENED, STORAGE_READ, STORAGE_WRITE };

/* Works in a process of its own, so it changes nothing here but storage: what it finds goes into answer. persistent is
 * NULL for STORAGE_UNOPENED. */
typedef tck_status_t storage_work_fn(const struct cli *cli, struct persistent *persistent, const void *ctx,
                                     json_t *answer, struct error *err);

struct storage_job {
    storage_work_fn *work;
    const void *ctx;
    enum storage_use use;
    const char *elsewhere; /* what else than save_dir and load_dir, which it bounds itself, may hang; or NULL */
};

/* Has the work done; the caller frees the answer. TCK_ERR_NOENT if the job has nothing on storage (nothing is made
 * then), TCK_ERR_TIMEDOUT if storage does not move for storage_timeout_ms: then the work is left behind. */
must_check tck_status_t storage_do(const struct cli *cli, const struct storage_job *job, json_t **answer_out,
                                   struct error *err);

/* For the work to say, where persistent does not say it, that it has come further. */
void storage_moved(void);

#endif
