/* SPDX-License-Identifier: Apache-2.0
 * The header of a slot: the memory tier's source of truth. Written alternately to two pages, each with its CRC32C, so
 * that one is always whole; of the valid ones, that with the higher sequence number wins. Format in docs/formats.md. */
#ifndef TCK_TIERS_SLOT_HEADER_H
#define TCK_TIERS_SLOT_HEADER_H

#include "base/config.h"
#include "base/digest.h"
#include "base/process.h"
#include "base/schema.h"
#include "core/slot.h"

#define SLOT_HEADER_BYTES 4096
#define SLOT_FORMAT       3
#define SLOT_STRIDE_MAX   ((uint64_t)1 << 50) /* keeps every product of sizes inside 64 bits */

/* The trainer that was given the slot. */
struct slot_writer {
    struct process process;
    uint32_t rank; /* of the header's version */
};
#define SLOT_WRITER_FIELDS(F) \
    F(i32, process.pid)       \
    F(u64, process.start)     \
    F(u32, rank)

#define SLOT_HEADER_FIELDS(F)                                                                  \
    F(u64, sequence) /* grows with every write */                                              \
    F(str, job, CONFIG_NAME)                                                                   \
    F(hash128, segment) /* random id of the segment, pairs data and header files */            \
    F(u32, slot)                                                                               \
    F(u32, slot_count)                                                                         \
    F(u64, slot_stride) /* distance of the images in the data file */                          \
    F(u64, image_bytes) /* capacity and length: a slot serves one shard */                     \
    F(hash128, shard)                                                                          \
    F(hash128, layout) /* of the term that wrote it */                                         \
    F(version, version)                                                                        \
    F(choice, enum slot_state, state, SLOT_STATES)                                             \
    F(u32, chunk_bytes)                                                                        \
    F(hash128, root)                                                                           \
    F(bool, committed)           /* its node had learned the commit when it wrote this */      \
    F(bool, to_storage)          /* the trainer that filled it wants its version on storage */ \
    F(part, slot_writer, writer) /* in state FILLING and QUARANTINED; zero otherwise */
SCHEMA_STRUCT(slot_header, SLOT_HEADER_FIELDS)

/* page_out is SLOT_HEADER_BYTES. */
void slot_header_encode(const struct slot_header *header, uint8_t *page_out);
/* Accepts any bytes. TCK_ERR_CORRUPT: bad magic or CRC. TCK_ERR_PROTO: another format, with both numbers in the text.
 */
must_check tck_status_t slot_header_decode(const uint8_t *page, struct slot_header *out, struct error *err);
/* Of two pages, the newest whole one. */
must_check tck_status_t slot_header_newest(const uint8_t *page_a, const uint8_t *page_b, struct slot_header *out,
                                           struct error *err);

#endif
