/* SPDX-License-Identifier: Apache-2.0
 * The memory tier: segments, each with the slots of one shard. A segment is two files: data (the images, shared with
 * trainers, 2 MiB pages where they can be had) and meta (per slot two header pages and the chunk CRC table, this
 * agent's alone; at its end the page of seals (base/seal.h), which trainers write). Both are sealed against shrinking
 * and growing and are parked with the service manager (park.h). */
#ifndef TCK_TIERS_MEMORY_H
#define TCK_TIERS_MEMORY_H

#include "base/seal.h"
#include "tiers/slot_header.h"

struct memory;

struct memory_setup {
    const char *job;
    uint64_t cap_bytes;
    const char *hugetlb_mount; /* "" none */
    uint32_t threads;          /* that touch pages */
    /* Parks a file under a name so that it survives this process; NULL in tests. Called for data and meta. */
    tck_status_t (*park)(void *ctx, const char *name, int fd, struct error *err);
    void (*unpark)(void *ctx, const char *name);
    void *ctx;
};

must_check tck_status_t memory_new(const struct memory_setup *setup, struct memory **out, struct error *err);
void memory_free(struct memory *memory); /* unmaps; parked files live on */

struct segment;

/* Takes back parked files found at start. name as parked; takes over fd in any case. Pairs are completed in any order;
 * memory_adopted drops halves and files with no valid header, logs each, and unparks them. */
void memory_adopt(struct memory *memory, const char *name, int fd);
void memory_adopted(struct memory *memory);

/* The segment of this shard, allocated, touched and parked if there is none yet (kept if there is one of the same size
 * and slot count; TCK_ERR_EXIST if it differs). TCK_ERR_NOSPC names the bytes wanted, in use and allowed, or available
 * on this machine. Blocks until all pages are there. */
must_check tck_status_t memory_add(struct memory *memory, struct hash128 shard, uint64_t image_bytes,
                                   uint32_t slot_count, struct segment **out, struct error *err);
void memory_remove(struct memory *memory, struct segment *segment);

struct segment *memory_find(const struct memory *memory, struct hash128 shard);
size_t memory_count(const struct memory *memory);
struct segment *memory_at(const struct memory *memory, size_t i); /* sorted by shard id */
uint64_t memory_used_bytes(const struct memory *memory);
uint64_t memory_cap_bytes(const struct memory *memory);

struct segment_info {
    struct hash128 shard;
    uint64_t image_bytes, slot_stride;
    uint32_t slot_count, page_bytes;
    int data_fd, meta_fd; /* the segment's: not to be closed */
};
struct segment_info segment_info(const struct segment *segment);
uint8_t *segment_image(const struct segment *segment, uint32_t slot);
uint32_t *segment_crcs(const struct segment *segment, uint32_t slot);
/* The newest header of the slot as last written or found. */
const struct slot_header *segment_header(const struct segment *segment, uint32_t slot);
/* What a trainer has sealed this slot with since it was last given to one. */
struct sealed segment_seal(const struct segment *segment, uint32_t slot);
/* Writes the header to the older of the two pages. States FILLING and RECEIVING take the slot's seal away first. Fills
 * in sequence, job, segment, slot, sizes and shard itself. */
void segment_write_header(struct segment *segment, uint32_t slot, const struct slot_header *header);
/* Recomputes every chunk: TCK_ERR_CORRUPT names slot and first bad chunk. May run in a pool thread. */
must_check tck_status_t segment_verify(struct segment *segment, uint32_t slot, struct error *err);
/* The same in parts, for several threads: the slot has digests and they give the root in its header (TCK_ERR_INVAL,
 * TCK_ERR_CORRUPT); one chunk is as its digest says. */
must_check tck_status_t segment_verify_root(struct segment *segment, uint32_t slot, struct error *err);
must_check tck_status_t segment_verify_chunk(struct segment *segment, uint32_t slot, uint32_t i, struct error *err);
/* Writes the slot's header again if what lies in memory is no longer what was written there: what an agent that starts
 * anew will go by. True if it had to. */
bool segment_mend_header(struct segment *segment, uint32_t slot);

#endif
