/* SPDX-License-Identifier: Apache-2.0
 * A header page: magic, CRC32C of all that follows it, format, then the fields of struct slot_header in its order, then
 * zeros. Magic, CRC and format lie at the same place in every format, so that a page of another one is told from a torn
 * one. */
#include "tiers/slot_header.h"

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

/* A writer over memory of the caller. It never allocates as long as all that is written fits. */
static struct writer writer_over(uint8_t *data, size_t cap)
{
    return (struct writer){.data = data, .cap = cap, .max = cap};
}

static void write_fields(const struct slot_header *header, struct writer *w)
{
    write_u64(w, header->sequence);
    write_str(w, header->job);
    write_hash128(w, header->segment);
    write_u32(w, header->slot);
    write_u32(w, header->slot_count);
    write_u64(w, header->slot_stride);
    write_u64(w, header->image_bytes);
    write_hash128(w, header->shard);
    write_hash128(w, header->layout);
    write_version(w, header->version);
    write_u8(w, (uint8_t)header->state);
    write_u32(w, header->chunk_bytes);
    write_hash128(w, header->root);
    write_u8(w, header->committed);
    write_u8(w, header->to_storage);
    write_u32(w, (uint32_t)header->writer.process.pid);
    write_u64(w, header->writer.process.start);
    write_u32(w, header->writer.rank);
}

void slot_header_encode(const struct slot_header *header, uint8_t *page_out)
{
    memset(page_out, 0, SLOT_HEADER_BYTES);
    struct writer body = writer_over(page_out + CRC_END, SLOT_HEADER_BYTES - CRC_END);
    write_u32(&body, SLOT_FORMAT);
    write_fields(header, &body);
    struct writer head = writer_over(page_out, CRC_END);
    write_u64(&head, SLOT_MAGIC);
    write_u32(&head, page_crc(page_out));
}

static struct slot_header read_fields(struct reader *r)
{
    struct slot_header header = {.sequence = read_u64(r)};
    read_str(r, header.job, sizeof(header.job));
    header.segment = read_hash128(r);
    header.slot = read_u32(r);
    header.slot_count = read_u32(r);
    header.slot_stride = read_u64(r);
    header.image_bytes = read_u64(r);
    header.shard = read_hash128(r);
    header.layout = read_hash128(r);
    header.version = read_version(r);
    uint8_t state = read_u8(r);
    r->failed |= state >= SLOT_STATES;
    header.state = r->failed ? SLOT_FREE : (enum slot_state)state;
    header.chunk_bytes = read_u32(r);
    header.root = read_hash128(r);
    header.committed = read_bool(r);
    header.to_storage = read_bool(r);
    uint32_t pid = read_u32(r);
    r->failed |= pid > INT32_MAX;
    header.writer.process.pid = r->failed ? 0 : (pid_t)pid;
    header.writer.process.start = read_u64(r);
    header.writer.rank = read_u32(r);
    return header;
}

/* What must hold for the sizes to be computed with. */
static bool sizes_make_sense(const struct slot_header *header)
{
    return header->slot < header->slot_count && header->slot_count <= CORE_SLOTS_MAX && header->image_bytes > 0 &&
           header->image_bytes <= header->slot_stride && header->slot_stride <= SLOT_STRIDE_MAX &&
           header->slot_stride % STRIDE_ALIGN == 0 && header->chunk_bytes == CHUNK_BYTES;
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
    struct slot_header header = read_fields(&r);
    if (r.failed || !name_is_safe(header.job) || !sizes_make_sense(&header)) {
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
    /* A whole page of another format may be the newest: what the other page says may be long untrue. */
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
