/* SPDX-License-Identifier: Apache-2.0
 * Writes metadata in the background: rows of the catalog, and notes in the term file, in the order of the calls.
 * No other work waits for it. */
#ifndef TCK_AGENT_METADATA_WRITER_H
#define TCK_AGENT_METADATA_WRITER_H

#include "base/status.h"
#include "base/version.h"
#include "base/world.h"
#include "recovery/catalog.h"

#include <stdbool.h>

struct client;
struct config;
struct metadata;
struct persistent;
struct pool;
struct storage_ops;
struct term_context;

/* Dependencies. */
struct metadata_setup {
    const struct config *config;
    struct catalog *catalog; /* NULL: it gets no rows */
    struct persistent *persistent;
    struct pool *io;
    struct storage_ops *storage_ops;
};

must_check tck_status_t metadata_new(const struct metadata_setup *setup, struct metadata **out, struct error *err);
/* Pending entries are not written. */
void metadata_free(struct metadata *md);
void metadata_put_version(struct metadata *md, const struct term_context *tc, struct version version,
                          enum catalog_state state);
void metadata_put_nodes(struct metadata *md, const struct term_context *tc);
/* Once rank 0 has joined, with its trainer as `first` (NULL: it is not connected here): writes the members of its world
 * beside the claim. To be called repeatedly: it retries until that has succeeded. */
void metadata_note_world(struct metadata *md, const struct world *world, const struct client *first);
void metadata_note_restored(struct metadata *md, const struct term_context *tc, struct version version);
/* The same once more if that could not be written. */
void metadata_repeat_restored(struct metadata *md, const struct term_context *tc);
/* The coordinator notes the first commit of its term beside the claim: the version that it restored did not kill the
 * job. */
void metadata_note_commit(struct metadata *md, const struct term_context *tc);
/* The same when the job is done, which proves the same. */
void metadata_note_end(struct metadata *md, struct term_context *tc);
/* Deletes what drains of older terms left in the stage: none of them can be published any more. */
void metadata_sweep_stage(struct metadata *md, const struct term_context *tc);
/* Notes beside the claim may have been overwritten: writes those of the world, of the restored version and of the
 * commit again. */
void metadata_repeat_notes(struct metadata *md);
/* True if any entry has not been written yet. */
bool metadata_is_pending(const struct metadata *md);

#endif
