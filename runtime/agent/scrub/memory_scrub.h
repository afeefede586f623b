/* SPDX-License-Identifier: Apache-2.0
 * Scrubs the memory tier: checks every snapshot against its digests again and again, in small parts with pauses, or at
 * once for the command. A copy that does not match is dropped, and a missing one is fetched. It has a timer of its own,
 * reads the memory tier and the current term, and waits while a registration may move memory. */
#ifndef TCK_AGENT_MEMORY_SCRUB_H
#define TCK_AGENT_MEMORY_SCRUB_H

#include "base/json.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct config;
struct fetches;
struct loop;
struct memory;
struct pool;
struct segment;
struct slot_ops;
struct term_context;

struct scrub;

/* Dependencies. */
struct scrub_setup {
    const struct config *config;
    struct loop *loop;
    struct pool *pool;
    const struct memory *memory;
    struct term_context *const *term; /* the current term */
    struct slot_ops *slot_ops;
    struct fetches *fetches;
    const bool *leaving; /* the agent is exiting: no check is started */
};

/* What was found since this agent started. */
struct scrub_counts {
    uint64_t slots_checked, slots_bad, headers_repaired, copies_repaired;
    uint64_t copies_missing; /* of the committed version, now */
};

must_check tck_status_t scrub_new(const struct scrub_setup *setup, struct scrub **out, struct error *err);
void scrub_free(struct scrub *scrub);
void scrub_tick(struct scrub *scrub);
/* Checks every snapshot in memory now. done is called once; bad is an array of texts, which it must free, or NULL if
 * the agent is exiting.
 */
typedef void scrub_done_fn(void *ctx, uint64_t checked, json_t *bad);
must_check tck_status_t scrub_now(struct scrub *scrub, scrub_done_fn *done, void *ctx, struct error *err);
/* The bytes in this verified slot do not match their digests: drops the copy. */
void scrub_drop_copy(struct scrub *scrub, struct segment *segment, uint32_t k, const char *why);
/* A fetch_repair has ended. */
void scrub_repaired(struct scrub *scrub, bool ok);
/* A node came up, which may have copies that no other node had. */
void scrub_peer_up(struct scrub *scrub);
struct scrub_counts scrub_counts(const struct scrub *scrub);

#endif
