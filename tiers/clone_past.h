/* SPDX-License-Identifier: Apache-2.0
 * What this agent has written to save_dir: of each shard the digests of its last two files, so that the next version
 * can share blocks with one of them. It is kept in memory alone, since nothing that is read from storage may say what a
 * file there should have. All in the loop's thread, but what was taken is the taker's. */
#ifndef TCK_TIERS_CLONE_PAST_H
#define TCK_TIERS_CLONE_PAST_H

#include "tiers/clone_choice.h"

/* Which file has a name. */
struct file_mark {
    uint64_t inode, bytes;
    int64_t changed_s, changed_ns; /* its content */
};

/* A file that this agent has written. */
struct clone_base {
    struct version version;
    struct file_mark mark;
    uint32_t in_a_row;    /* versions up to this one that share blocks with the one before them */
    struct hashed hashed; /* refers to what follows */
    struct hash128 hashes[];
};
/* With the CRCs, and no hash yet. NULL: no memory. */
struct clone_base *clone_base_new(struct version version, uint64_t image_bytes, const uint32_t *crcs);

/* Those of a shard: two, because the newest may never be published. */
struct clone_past {
    struct hash128 shard;
    struct clone_base *of[2]; /* owned; newest first; NULL: none */
    struct clone_past *next;
};

/* Takes the shard's out of the list, or makes an empty one. NULL: no memory. */
struct clone_past *clone_past_take(struct clone_past **list, struct hash128 shard);
/* Returns what was taken. Drops that of shards of which this agent no longer writes files, and if another one of the
 * same shard was returned meanwhile, this one. */
void clone_past_return(struct clone_past **list, struct clone_past *past);
/* The newest file. Of those before it, `base` is kept; NULL: the one that was the newest. Takes `written` over. */
void clone_past_add(struct clone_past *past, struct clone_base *written, const struct clone_base *base);
/* This file is not to be used again. */
void clone_past_drop(struct clone_past *past, const struct clone_base *base);
void clone_past_free(struct clone_past *list);

#endif
