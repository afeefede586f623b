/* SPDX-License-Identifier: Apache-2.0
 * Prevents trainers whose term is over from saving. */
#ifndef TCK_AGENT_FENCE_H
#define TCK_AGENT_FENCE_H

#include <stdint.h>

struct client;
struct persistent;
struct pool;
struct storage_ops;

/* Dependencies. */
struct fence_setup {
    struct client *const *clients; /* the current list */
    struct persistent *persistent;
    struct pool *io;
    struct storage_ops *storage_ops;
};

/* Notifies trainers of older terms, through their shared status pages, that this term is in force, and who has claimed
 * it.
 */
void fence_older(const struct fence_setup *fence, uint64_t term);

#endif
