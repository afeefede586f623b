/* SPDX-License-Identifier: Apache-2.0
 * The command's own look at the persistent tier: it needs no agent for that. */
#ifndef TCK_CLI_STORAGE_H
#define TCK_CLI_STORAGE_H

#include "cli/cli.h"
#include "tiers/persistent.h"

struct storage {
    struct loop *loop;
    struct pool *pool;
    struct persistent *persistent;
};

/* TCK_ERR_NOENT if the job has no directory: the command makes none. On failure storage_close is still to be called. */
must_check tck_status_t storage_open(const struct cli *cli, struct storage *out, struct error *err);
must_check tck_status_t storage_list(struct storage *storage, struct published **out, size_t *count_out,
                                     struct error *err);
void storage_close(struct storage *storage);

#endif
