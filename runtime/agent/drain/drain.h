/* SPDX-License-Identifier: Apache-2.0
 * Drains: each node writes its part of a committed version into the stage. The coordinator collects the nodes' reports,
 * writes the manifest and publishes. */
#ifndef TCK_AGENT_DRAIN_H
#define TCK_AGENT_DRAIN_H

#include "base/status.h"
#include "core/protocol.h"

#include <stddef.h>
#include <stdint.h>

struct adopt_setup;
struct config;
struct health;
struct pacing;
struct persistent;
struct scrub;
struct storage_ops;
struct term_context;

struct drain;

/* Dependencies. */
struct drain_setup {
    const struct config *config;
    struct persistent *persistent;
    struct storage_ops *storage_ops;
    struct health *health;
    const struct adopt_setup *adopt;
    struct scrub *scrub;
    struct pacing *pacing;
};

/* This node's parts of versions since this agent started. */
struct drain_counts {
    uint64_t written, failed;
    uint64_t bytes;        /* of files that were written, those of parts that failed later included */
    uint64_t shared_bytes; /* of files that share them with older ones, which were not written */
};

must_check tck_status_t drain_new(const struct drain_setup *setup, struct drain **out, struct error *err);
/* Also discards the manifest that is being assembled. */
void drain_free(struct drain *drain);

void drain_begin(struct drain *drain, struct term_context *tc, const struct action *action);
/* A decision was made or learned, or a term is over: files that are no longer needed are given up, because their slots
 * may be filled again. */
void drain_decided(struct drain *drain);
void drain_notify(const struct drain *drain, struct term_context *tc, const struct action *action);
void drain_handle_drained(struct drain *drain, struct term_context *tc, uint32_t node, const void *data, size_t len);
void drain_publish(struct drain *drain, struct term_context *tc, const struct action *action);
struct drain_counts drain_counts(const struct drain *drain);

#endif
