/* SPDX-License-Identifier: Apache-2.0
 * Exports the metrics as configured: over HTTP, into a file, both, or not at all. What is exported is made in the
 * agent's loop once a second, and handed to threads: neither a scraper nor a file system can hold the loop up. */
#ifndef TCK_AGENT_METRICS_H
#define TCK_AGENT_METRICS_H

#include "base/status.h"

struct config;
struct loop;
struct metrics;
struct report;

/* What is needed here. */
struct metrics_setup {
    const struct config *config;
    struct loop *loop;
    void (*collect)(void *ctx, struct report *out);
    void *ctx;
};

/* An address that is taken is no error: the job matters more. It is tried again, and metrics_trouble reports it. */
must_check tck_status_t metrics_new(const struct metrics_setup *setup, struct metrics **out, struct error *err);
void metrics_free(struct metrics *m);
void metrics_tick(struct metrics *m); /* once a second */
/* Where they are served; "": nowhere. */
const char *metrics_at(const struct metrics *m);
/* Why they are not exported as configured; "": they are. */
const char *metrics_trouble(const struct metrics *m);

#endif
