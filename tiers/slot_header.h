/* SPDX-License-Identifier: Apache-2.0
 * The header of a slot: the truth of the memory tier. Written alternately to two pages, each with its CRC32C, so that
 * one is always whole; the one with the higher sequence number that checks wins. Format in docs/formats.md. */
#ifndef TCK_TIERS_SLOT_HEADER_H
#define TCK_TIERS_SLOT_HEADER_H

#include "base/config.h"
#include "base/digest.h"
#include "base/process.h"
#include "core/slot.h"

#define SLOT_HEADER_BYTES 4096
#define SLOT_FORMAT       3
#define SLOT_STRIDE_MAX   ((uint64_t)1 << 50) /* keeps every product of sizes inside 64 bits */

/* The trainer that was given the slot. */
struct slot_writer {
    struct process process;
    uint32_t rank; /* of the header's version */
};

struct slot_header {
    uint64_t sequence; /* grows with every write */
    char job[CONFIG_NAME];
    struct hash128 segment; /* random id of the segment, pairs data and header files */
    uint32_t slot, slot_count;
    uint64_t slot_stride; /* distance of the images in the data file */
    uint64_t image_bytes; /* capacity and length: a slot serves one shard */
    struct hash128 shard;
    struct hash128 layout; /* of the term that wrote it */
    struct version version;
    enum slot_state state;
    uint32_t chunk_bytes;
    struct hash128 root;
    bool committed;            /* its node had learned the commit when it wrote this */
    bool to_storage;           /* the trainer that filled it wants its version on storage */
    struct slot_writer writer; /* in state FILLING and QUARANTINED; zero otherwise */
};

/* page_out is SLOT_HEADER_BYTES. */
void slot_header_encode(const struct slot_header *header, uint8_t *page_out);
/* Total: any bytes. TCK_ERR_CORRUPT (bad magic or CRC), TCK_ERR_PROTO (other format; both numbers in the text). */
must_check tck_status_t slot_header_decode(const uint8_t *page, struct slot_header *out, struct error *err);
/* Of two pages, the newest whole one. */
must_check tck_status_t slot_header_newest(const uint8_t *page_a, const uint8_t *page_b, struct slot_header *out,
                                           struct error *err);

#endif
