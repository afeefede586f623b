/* SPDX-License-Identifier: Apache-2.0
 * The segment of one shard, as the memory tier gives it out: its slots, their headers and digests. */
#ifndef TCK_TIERS_SEGMENT_H
#define TCK_TIERS_SEGMENT_H

#include "base/seal.h"
#include "tiers/slot_header.h"

struct segment;

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
bool segment_repair_header(struct segment *segment, uint32_t slot);

#endif
