/* SPDX-License-Identifier: Apache-2.0
 * The segment of one shard, as the memory tier hands it out: its slots, their headers and digests. */
#ifndef TCK_TIERS_SEGMENT_H
#define TCK_TIERS_SEGMENT_H

#include "base/seal.h"
#include "tiers/slot_header.h"

struct segment;

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
/* Writes the slot's header again if the page in memory is no longer as it was written, since a restarted agent relies
 * on it. True if it had to. */
bool segment_repair_header(struct segment *segment, uint32_t slot);

#endif
