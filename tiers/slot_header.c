/* SPDX-License-Identifier: Apache-2.0
 * A header page: magic, CRC32C of all that follows it, format, then the fields of struct slot_header in order, then
 * zeros. Magic, CRC and format are at the same place in every format, so that a page of another format is not mistaken
 * for a torn one. */
#include "tiers/slot_header.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#define SLOT_MAGIC   UINT64_C(0x31746f6c536b6354) /* "TckSlot1" */
#define CRC_OFFSET   8
#define CRC_END      (CRC_OFFSET + sizeof(uint32_t))
#define STRIDE_ALIGN 4096

static uint32_t page_crc(const uint8_t *page)
{
    return crc32c(0, page + CRC_END, SLOT_HEADER_BYTES - CRC_END);
}

static bool slot_writer_is_valid(const struct slot_writer *writer)
{
    return writer->process.pid >= 0;
}

SCHEMA_PART(slot_writer, SLOT_WRITER_FIELDS, slot_writer_is_valid)

/* Whether it is safe to compute with the sizes. */
static bool sizes_make_sense(const struct slot_header *header)
{
    return header->slot < header->slot_count && header->slot_count <= CORE_SLOTS_MAX && header->image_bytes > 0 &&
           header->image_bytes <= header->slot_stride && header->slot_stride <= SLOT_STRIDE_MAX &&
           header->slot_stride % STRIDE_ALIGN == 0 && header->chunk_bytes == CHUNK_BYTES;
}

static bool header_is_valid(const struct slot_header *header)
{
    return name_is_safe(header->job) && sizes_make_sense(header);
}

SCHEMA_PART(slot_header, SLOT_HEADER_FIELDS, header_is_valid)
static_assert(slot_header_LEAST_BYTES + CONFIG_NAME + CRC_END + sizeof(uint32_t) <= SLOT_HEADER_BYTES,
              "a header fits into its page");

void slot_header_encode(const struct slot_header *header, uint8_t *page_out)
{
    memset(page_out, 0, SLOT_HEADER_BYTES);
    struct writer body = writer_over(page_out + CRC_END, SLOT_HEADER_BYTES - CRC_END);
    write_u32(&body, SLOT_FORMAT);
    write_slot_header(&body, header);
    struct writer head = writer_over(page_out, CRC_END);
    write_u64(&head, SLOT_MAGIC);
    write_u32(&head, page_crc(page_out));
}

tck_status_t slot_header_decode(const uint8_t *page, struct slot_header *out, struct error *err)
{
    struct reader r = reader_of(page, SLOT_HEADER_BYTES);
    if (read_u64(&r) != SLOT_MAGIC) {
        return error_set(err, TCK_ERR_CORRUPT, "not a slot header");
    }
    if (read_u32(&r) != page_crc(page)) {
        return error_set(err, TCK_ERR_CORRUPT, "the CRC of the slot header does not match");
    }
    uint32_t format = read_u32(&r);
    if (format != SLOT_FORMAT) {
        return error_set(err, TCK_ERR_PROTO, "slot header of format %" PRIu32 ", this build reads format %d", format,
                         SLOT_FORMAT);
    }
    struct slot_header header = read_slot_header(&r);
    if (r.failed) {
        return error_set(err, TCK_ERR_CORRUPT, "the slot header contradicts itself");
    }
    *out = header;
    return TCK_OK;
}

tck_status_t slot_header_newest(const uint8_t *page_a, const uint8_t *page_b, struct slot_header *out,
                                struct error *err)
{
    struct error err_a = {0}, err_b = {0};
    struct slot_header a = {0}, b = {0};
    tck_status_t status_a = slot_header_decode(page_a, &a, &err_a);
    tck_status_t status_b = slot_header_decode(page_b, &b, &err_b);
    /* A whole page of another format may be the newest, and then the other page is outdated. */
    if (status_a == TCK_ERR_PROTO || status_b == TCK_ERR_PROTO) {
        return error_set(err, TCK_ERR_PROTO, "%s", status_a == TCK_ERR_PROTO ? err_a.text : err_b.text);
    }
    if (status_a != TCK_OK && status_b != TCK_OK) {
        return error_set(err, TCK_ERR_CORRUPT, "neither page is whole: first: %s, second: %s", err_a.text, err_b.text);
    }
    bool b_wins = status_a != TCK_OK || (status_b == TCK_OK && b.sequence > a.sequence);
    *out = b_wins ? b : a;
    return TCK_OK;
}
