/* SPDX-License-Identifier: Apache-2.0
 * Trainers whose term is over can no longer save. */
#ifndef TCK_AGENT_FENCE_H
#define TCK_AGENT_FENCE_H

#include <stdint.h>

struct client;
struct persistent;
struct pool;
struct storage_ops;

/* What is needed here. */
struct fence_setup {
    struct client *const *clients; /* the list of all, as it is at any time */
    struct persistent *persistent;
    struct pool *io;
    struct storage_ops *storage_ops;
};

/* Notifies trainers of older terms, through their shared status pages, that this term is in force, and who has claimed
 * it.
 */
void fence_older(const struct fence_setup *fence, uint64_t term);

#endif
