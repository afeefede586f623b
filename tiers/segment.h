/* SPDX-License-Identifier: Apache-2.0
 * The segment of one shard, as the memory tier hands it out: its slots, their headers and digests. */
#ifndef TCK_TIERS_SEGMENT_H
#define TCK_TIERS_SEGMENT_H

#include "base/cpus.h"
#include "base/seal.h"
#include "tiers/slot_header.h"

struct segment;

/* The request for a segment. */
struct segment_wish {
    struct hash128 shard;
    uint64_t image_bytes;
    uint32_t slot_count;
    uint32_t used;    /* of the slots: the others get no pages */
    struct cpus near; /* the processors of the NUMA node where its trainer runs */
};

struct segment_info {
    struct hash128 shard;
    uint64_t image_bytes, slot_stride;
    uint32_t slot_count, page_bytes;
    int data_fd, meta_fd; /* borrowed: not to be closed */
};
struct segment_info segment_info(const struct segment *segment);
uint8_t *segment_image(const struct segment *segment, uint32_t slot);
uint32_t *segment_crcs(const struct segment *segment, uint32_t slot);
/* The newest header of the slot as last written or found. */
const struct slot_header *segment_header(const struct segment *segment, uint32_t slot);
/* The trainer's seal beside this slot, since the slot was last given to one. */
struct sealed segment_seal(const struct segment *segment, uint32_t slot);
/* Writes the header to the older of the two pages, and fills in sequence, job, segment, slot, sizes and shard itself.
 * States FILLING and RECEIVING clear the slot's seal first. */
void segment_write_header(struct segment *segment, uint32_t slot, const struct slot_header *header);
/* Checks a slot in parts, for several threads; TCK_ERR_CORRUPT names slot and chunk. The root: the slot has digests
 * (else TCK_ERR_INVAL), and they match the root in its header. One chunk: it matches its digest. */
must_check tck_status_t segment_verify_root(struct segment *segment, uint32_t slot, struct error *err);
must_check tck_status_t segment_verify_chunk(struct segment *segment, uint32_t slot, uint32_t i, struct error *err);
/* Unproven: ranks were offered the slot, and have not reported yet that its bytes match its digests. Ends when the slot
 * is filled again. */
bool segment_is_unproven(const struct segment *segment, uint32_t slot);
void segment_set_unproven(struct segment *segment, uint32_t slot, bool unproven);
/* Writes the slot's header again if the page in memory is no longer as it was written, since a restarted agent relies
 * on it. True if it had to. */
bool segment_repair_header(struct segment *segment, uint32_t slot);

/* ---- how many slots have pages --------------------------------------------------------------------------------- */

/* This node needs so many of the slots. The pages of free ones beyond that are given back where they can be; the others
 * follow (core/node_pressure.h). Takes long, and may be called in any thread while nothing uses the segment. */
void segment_set_used(struct segment *segment, uint32_t slots);
/* How many of the slots that are needed were given back. */
uint32_t segment_lacking(const struct segment *segment);

/* ---- giving slots back when memory is short -------------------------------------------------------------------- */

/* Whether the pages of free slots may be removed: not if they are reserved for hugetlb or a trainer has pinned them for
 * a device. stored_here: a trainer of this node fills the slots. */
bool segment_can_give_back(const struct segment *segment, bool stored_here);
/* Whether this slot was given back: it must not be used before segment_take_back. A restarted agent finds that out by
 * the pages that are missing. */
bool segment_is_given_back(const struct segment *segment, uint32_t slot);
/* From now on the slot counts as given back, or no longer. */
void segment_set_given_back(struct segment *segment, uint32_t slot, bool given_back);
/* Whether a slot that was given back has pages, still or again: a trainer that maps a segment allocates them. */
bool segment_has_pages(const struct segment *segment, uint32_t slot);
/* A trainer that fills the slots is about to map them, and may pin them: until it says that it has not, no page is
 * removed. Waits for what a pool thread is removing, which is a few milliseconds. */
void segment_announce(struct segment *segment);
/* Removes the slot's pages, and allocates them again. Both take long, and may be called in any thread. TCK_ERR_BUSY:
 * not all were removed, because segment_can_give_back is no longer true. */
must_check tck_status_t segment_give_back(struct segment *segment, uint32_t slot, bool stored_here, struct error *err);
must_check tck_status_t segment_take_back(const struct segment *segment, uint32_t slot, uint32_t threads,
                                          struct error *err);

#endif
