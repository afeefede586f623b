/* SPDX-License-Identifier: Apache-2.0
 * Locates the shards of this node on storage. A version's manifest lists the shards of the whole job, so it is read
 * once for all shards of this node instead of once per fetch. Only its entries for these shards are kept, and only of
 * the version that was requested last. */
#ifndef TCK_AGENT_STORED_FILES_H
#define TCK_AGENT_STORED_FILES_H

#include "tiers/persistent.h"

struct pool;
struct storage_ops;
struct stored_files;
struct term_context;

/* Dependencies. */
struct stored_files_setup {
    struct persistent *persistent;
    struct pool *io;
    struct storage_ops *storage_ops;
    /* The lookup in progress has ended: its results can be taken, unless failed is an error. */
    void (*looked)(void *ctx, const struct error *failed);
    void *ctx;
};

must_check tck_status_t stored_files_new(const struct stored_files_setup *setup, struct stored_files **out,
                                         struct error *err);
void stored_files_free(struct stored_files *sf);
/* Starts a lookup of all shards of this term on this node, unless one is in progress. Calls `looked` at its end. */
must_check tck_status_t stored_files_look(struct stored_files *sf, const struct term_context *tc,
                                          struct version version, struct error *err);
/* Hands over the result of the last lookup for this shard, which may be an error. Each result can be taken only once,
 * so that fetching a shard again also looks it up again. False if there is no result. */
bool stored_files_take(struct stored_files *sf, struct version version, struct hash128 shard, struct found_file *out);
/* At the end of a term: drops all results, and ignores those of a lookup in progress. */
void stored_files_reset(struct stored_files *sf);

#endif
