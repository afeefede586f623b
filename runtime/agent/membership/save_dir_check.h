/* SPDX-License-Identifier: Apache-2.0
 * Checks that save_dir is one directory for all nodes: each node must see the claim that one of them has made before
 * its trainers join. connectivity.c checks the result before it answers a JOIN. */
#ifndef TCK_AGENT_SAVE_DIR_CHECK_H
#define TCK_AGENT_SAVE_DIR_CHECK_H

#include "base/status.h"
#include "base/world.h"

#include <stdbool.h>
#include <stdint.h>

struct config;
struct health;
struct persistent;
struct pool;
struct save_dir_check;
struct storage_ops;

/* Dependencies. */
struct save_dir_check_setup {
    const struct config *config;
    struct persistent *persistent;
    struct pool *io;
    struct storage_ops *storage_ops;
    struct health *health;
    void (*settled)(void *ctx); /* a result is available */
    void *ctx;
};

must_check tck_status_t save_dir_check_new(const struct save_dir_check_setup *setup, struct save_dir_check **out,
                                           struct error *err);
void save_dir_check_free(struct save_dir_check *check);
/* Starts looking for the claim of this world's term in save_dir. */
void save_dir_check_begin(struct save_dir_check *check, const struct world *world);
void save_dir_check_tick(struct save_dir_check *check); /* retries if the claim was not found */
/* True if there is no result for this term yet and it is worth waiting for. */
bool save_dir_check_is_pending(const struct save_dir_check *check, uint64_t term);
/* True, with an error that names both nodes and the path, if this node cannot see the claim of this term, or with the
 * reason if no job of several nodes can use this save_dir. */
bool save_dir_is_not_shared(const struct save_dir_check *check, uint64_t term, struct error *err);

#endif
