/* SPDX-License-Identifier: Apache-2.0
 * Reads a shard file back while it is written, and compares each chunk with its digest. Where the page cache is
 * bypassed, a chunk is read as soon as it is written; elsewhere, when the file is synced, because before that the
 * kernel would return its own copy. All calls and callbacks in the loop's thread. */
#ifndef TCK_TIERS_READ_BACK_H
#define TCK_TIERS_READ_BACK_H

#include "tiers/tier.h"

struct persistent;
struct read_back;

struct read_back_setup {
    struct persistent *p;
    const struct tier_item *item; /* that is written; like the names, the caller's until done */
    const char *name, *part;      /* for errors; in dir_fd */
    int dir_fd;
    uint64_t epoch; /* once p's differs, it is given up */
    bool direct;    /* the file is written without the page cache */
    /* Runs once if it has begun, perhaps within the call that begins it. */
    void (*done)(void *ctx, const struct error *outcome);
    void *ctx;
};

must_check tck_status_t read_back_new(const struct read_back_setup *setup, struct read_back **out, struct error *err);
/* After done, or before it has begun. NULL: nothing. */
void read_back_free(struct read_back *back);

/* Chunk i is written; may begin it. */
void read_back_written(struct read_back *back, uint32_t i);
/* The whole file is written and synced. True if this begins it. */
bool read_back_synced(struct read_back *back);
/* The write has failed: it ends soon. */
void read_back_stop(struct read_back *back);
/* Whether it has begun and done has not run yet. */
bool read_back_runs(const struct read_back *back);

struct direct_file {
    int fd;
    uint64_t bytes; /* when it was opened */
};

/* Bypasses the page cache if the item's alignment and the file system allow it. */
must_check tck_status_t open_direct(int dir_fd, const char *name, int flags, const struct tier_item *item,
                                    struct direct_file *out, struct error *err);

#endif
