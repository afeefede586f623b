/* SPDX-License-Identifier: Apache-2.0
 * One put of a shard into a directory, as far as its file shares blocks with the last published one of the same shard
 * instead of having the same bytes written once more. Which chunks are the same is decided by hashes that this agent
 * has made when it wrote that file (clone_past.h), and everything that is shared is read back (read_back.h), so nothing
 * is shared with storage_verify off. */
#ifndef TCK_TIERS_CLONE_PUT_H
#define TCK_TIERS_CLONE_PUT_H

#include "tiers/tier.h"

struct clone_put;
struct persistent;

/* In the loop's thread. NULL: all of it is written, since that is configured, or the file system cannot share blocks,
 * or there is no memory for the hashes. */
struct clone_put *clone_put_begin(struct persistent *p, const struct tier_item *item);

/* In a pool thread, in this order. Hashes the chunks that may be unchanged. Nothing is shared if that ends early: the
 * tier is closing, or the put was given up, so that p's epoch differs. */
void clone_put_digest(struct clone_put *c, struct persistent *p, uint64_t epoch);
/* Tries whether files in this directory can share blocks, if that is not known yet; name: of the file to be put. */
void clone_put_try(struct clone_put *c, int dir_fd, const char *name);
/* Makes the new file, open for writing and empty, share what did not change. */
void clone_put_share(struct clone_put *c, const struct persistent *p, int fd, const char *name);
/* The file is whole, synced and has this name. */
void clone_put_named(struct clone_put *c, int dir_fd, const char *name);

/* One bit per chunk that is shared, and their bytes. NULL and 0: there are none; c may be NULL. */
const uint8_t *clone_put_shared(const struct clone_put *c);
uint64_t clone_put_bytes(const struct clone_put *c);
/* The file could not be written, or did not have the right bytes. True if that may be because of what it shared: from
 * now on this put shares nothing. */
bool clone_put_again(struct clone_put *c, const struct error *outcome);

/* In the loop's thread: the end. Remembers the file if it was named. NULL: nothing. */
void clone_put_end(struct persistent *p, struct clone_put *c);

#endif
