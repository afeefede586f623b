/* SPDX-License-Identifier: Apache-2.0
 * Where the shards of this node lie on storage. A version's manifest lists the shards of the whole job, so it is read
 * once for all shards of this node, and not for each of their fetches; of its content only what it says about these
 * shards is kept, and only of the version that was looked for last. */
#ifndef TCK_AGENT_STORED_FILES_H
#define TCK_AGENT_STORED_FILES_H

#include "tiers/persistent.h"

struct pool;
struct storage_ops;
struct stored_files;
struct term_context;

/* What is needed here. */
struct stored_files_setup {
    struct persistent *persistent;
    struct pool *io;
    struct storage_ops *storage_ops;
    /* The look that was under way is over, and what it found can be taken; or it failed, and failed says why. */
    void (*looked)(void *ctx, const struct error *failed);
    void *ctx;
};

must_check tck_status_t stored_files_new(const struct stored_files_setup *setup, struct stored_files **out,
                                         struct error *err);
void stored_files_free(struct stored_files *sf);
/* Looks for all shards of the term on this node, unless a look is under way: `looked` is called when it is over. */
must_check tck_status_t stored_files_look(struct stored_files *sf, const struct term_context *tc,
                                          struct version version, struct error *err);
/* What the last look has found out about this shard, be it an error. Each result can be taken once, so that what is
 * fetched again is also looked for again. False: nothing is known. */
bool stored_files_take(struct stored_files *sf, struct version version, struct hash128 shard, struct found_file *out);
/* The term is over: what is known is forgotten, and the result of a look under way is ignored. */
void stored_files_reset(struct stored_files *sf);

#endif
