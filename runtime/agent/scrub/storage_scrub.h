/* SPDX-License-Identifier: Apache-2.0
 * Scrubs published versions: each node re-reads the files that it has written itself, of one version after the other,
 * in small parts spread over a long time. It has a timer of its own: agent.c only starts and ends it, and the command
 * reads its counters. */
#ifndef TCK_AGENT_STORAGE_SCRUB_H
#define TCK_AGENT_STORAGE_SCRUB_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct config;
struct health;
struct loop;
struct persistent;
struct pool;
struct storage_ops;
struct storage_scrub;
struct term_context;

/* Dependencies. */
struct storage_scrub_setup {
    const struct config *config;
    struct loop *loop;
    struct pool *io;
    struct persistent *persistent;
    struct storage_ops *storage_ops;
    struct health *health;
    struct term_context *const *term; /* the current term */
    const bool *leaving;              /* the agent is exiting: no check is started */
};

/* What was found since this agent started. */
struct storage_scrub_counts {
    uint64_t files_checked, files_bad, files_repaired;
};

must_check tck_status_t storage_scrub_new(const struct storage_scrub_setup *setup, struct storage_scrub **out,
                                          struct error *err);
void storage_scrub_free(struct storage_scrub *ss);
struct storage_scrub_counts storage_scrub_counts(const struct storage_scrub *ss);

#endif
