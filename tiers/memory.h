/* SPDX-License-Identifier: Apache-2.0
 * The memory tier: segments, each with the slots of one shard. A segment is two files: data (the images, shared with
 * trainers, 2 MiB pages where they can be had) and meta (per slot two header pages and the chunk CRC table, this
 * agent's alone; at its end the page of seals (base/seal.h), which trainers write). Both are sealed against shrinking
 * and growing and are stored with the service manager (sd_notify.h). */
#ifndef TCK_TIERS_MEMORY_H
#define TCK_TIERS_MEMORY_H

#include "tiers/segment.h"

struct memory;

struct memory_setup {
    const char *job;
    uint64_t cap_bytes;
    const char *hugetlb_mount; /* "" none */
    uint32_t threads;          /* that touch pages */
    struct progress *progress; /* counts what they have touched; NULL: not counted */
    /* Parks a file under a name so that it survives this process; NULL in tests. Called for data and meta. What is
     * stored stays open until drop_fd, since it may have to be stored again with another process. */
    tck_status_t (*store_fd)(void *ctx, const char *name, int fd, struct error *err);
    void (*drop_fd)(void *ctx, const char *name);
    void *ctx;
};

must_check tck_status_t memory_new(const struct memory_setup *setup, struct memory **out, struct error *err);
void memory_free(struct memory *memory); /* unmaps; stored files live on */

/* Takes a stored file that was found at start, by its stored name; takes over fd, also on failure. What cannot be
 * adopted now stays open, unless drop_fd is called for it. The two files of a segment may come in any order;
 * memory_adopted drops and unparks incomplete pairs and files without a valid header, and logs each. */
void memory_adopt(struct memory *memory, const char *name, int fd);
void memory_adopted(struct memory *memory);

/* The segment of this shard: an existing one of the same size and slot count (TCK_ERR_EXIST if it differs), else a new
 * one, allocated, touched and stored. Only so many slots as are used have pages. An existing segment of which more are
 * used than before gets them. They count as given back if the machine has no memory for that now, or if the segment was
 * adopted and found without them. TCK_ERR_NOSPC names the bytes wanted, in use and allowed, or available on this
 * machine. Blocks until all pages are allocated. */
must_check tck_status_t memory_add(struct memory *memory, const struct segment_wish *wish, struct segment **out,
                                   struct error *err);
/* How many bytes memory_add would allocate for this shard if it has no segment yet. */
uint64_t memory_needed(const struct memory *memory, const struct segment_wish *wish);
void memory_remove(struct memory *memory, struct segment *segment);

struct segment *memory_find(const struct memory *memory, struct hash128 shard);
size_t memory_count(const struct memory *memory);
struct segment *memory_at(const struct memory *memory, size_t i); /* sorted by shard id */
uint64_t memory_used_bytes(const struct memory *memory);
uint64_t memory_cap_bytes(const struct memory *memory);

#endif
