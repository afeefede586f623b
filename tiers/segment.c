/* SPDX-License-Identifier: Apache-2.0
 * The two files of a segment and the headers of its slots. */
#include "tiers/segment.h"
#include "tiers/segment_impl.h"

#include "base/failpoint.h"
#include "base/log.h"
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define HEADER_PAGES    UINT64_C(2)
#define LINE_BYTES      64u /* of a cache */
#define REMOVED_AT_ONCE (UINT64_C(64) << 20)

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* ---- where things are ---------------------------------------------------------------------------------------- */

/* Images of at least a huge page are aligned to one. */
static uint64_t stride_of(uint64_t image_bytes)
{
    return round_up(image_bytes, image_bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : PAGE_BYTES);
}

/* Bytes per slot in the meta file. */
static uint64_t meta_stride(uint64_t image_bytes)
{
    return HEADER_PAGES * SLOT_HEADER_BYTES + round_up(chunk_count(image_bytes) * sizeof(uint32_t), PAGE_BYTES);
}

static uint64_t meta_bytes_of(uint64_t image_bytes, uint32_t slot_count)
{
    return slot_count * meta_stride(image_bytes) + SEALS_BYTES;
}

static uint8_t *header_page(const struct segment *segment, uint32_t slot, uint32_t page)
{
    return segment->meta.base + slot * meta_stride(segment->image_bytes) + (uint64_t)page * SLOT_HEADER_BYTES;
}

uint8_t *segment_image(const struct segment *segment, uint32_t slot)
{
    return segment->data.base + slot * segment->slot_stride;
}

uint32_t *segment_crcs(const struct segment *segment, uint32_t slot)
{
    return (uint32_t *)(void *)header_page(segment, slot, HEADER_PAGES);
}

static struct seal *seal_of(const struct segment *segment, uint32_t slot)
{
    struct seal *seals = (struct seal *)(void *)(segment->meta.base + segment->meta.bytes - SEALS_BYTES);
    return &seals[slot];
}

struct sealed segment_seal(const struct segment *segment, uint32_t slot)
{
    return seal_read(seal_of(segment, slot));
}

const struct slot_header *segment_header(const struct segment *segment, uint32_t slot)
{
    return &segment->headers[slot];
}

struct segment_info segment_info(const struct segment *segment)
{
    return (struct segment_info){.shard = segment->shard,
                                 .image_bytes = segment->image_bytes,
                                 .slot_stride = segment->slot_stride,
                                 .slot_count = segment->slot_count,
                                 .page_bytes = segment->data.page_bytes,
                                 .data_fd = segment->data.fd,
                                 .meta_fd = segment->meta.fd};
}

/* ---- writing headers ----------------------------------------------------------------------------------------- */

/* The magic is removed first and written last, so a writer that dies at any instruction leaves a page that is either
 * whole or plainly invalid. */
static void publish_page(uint8_t *page, const uint8_t *content)
{
    uint64_t magic;
    _Atomic uint64_t *place = (_Atomic uint64_t *)(void *)page;
    memcpy(&magic, content, sizeof(magic));
    atomic_store_explicit(place, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    memcpy(page + sizeof(magic), content + sizeof(magic), LINE_BYTES - sizeof(magic));
    memcpy(page + LINE_BYTES, content + LINE_BYTES, SLOT_HEADER_BYTES - LINE_BYTES); /* aligned, and so much faster */
    failpoint(header, writing);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(place, magic, memory_order_release);
}

void segment_write_header(struct segment *segment, uint32_t slot, const struct slot_header *header)
{
    _Alignas(LINE_BYTES) uint8_t content[SLOT_HEADER_BYTES];
    uint32_t page = 1 - segment->newest_page[slot];
    struct slot_header full = *header;
    full.sequence = segment->headers[slot].sequence + 1;
    memcpy(full.job, segment->job, sizeof(full.job));
    full.segment = segment->id;
    full.slot = slot;
    full.slot_count = segment->slot_count;
    full.slot_stride = segment->slot_stride;
    full.image_bytes = segment->image_bytes;
    full.shard = segment->shard;
    full.chunk_bytes = CHUNK_BYTES;
    slot_header_encode(&full, content);
    if (full.state == SLOT_FILLING || full.state == SLOT_RECEIVING) {
        failpoint(header, unsealing);
        seal_clear(seal_of(segment, slot)); /* the previous one, before the header announces a new filling */
        segment->unproven[slot] = false;
    }
    failpoint_bytes(header, page, content, sizeof(content));
    pthread_mutex_lock(&segment->lock);
    publish_page(header_page(segment, slot, page), content);
    segment->headers[slot] = full;
    segment->newest_page[slot] = page;
    pthread_mutex_unlock(&segment->lock);
    failpoint(header, written);
}

static void write_free_header(struct segment *segment, uint32_t slot)
{
    segment_write_header(segment, slot, &(struct slot_header){.state = SLOT_FREE});
}

static uint32_t with_pages(const struct segment *segment)
{
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < segment->slot_count; slot++) {
        count += !segment->given_back[slot];
    }
    return count;
}

/* A slot that was given back may have some pages again, if a trainer has mapped it. One into which bytes arrived when
 * an earlier agent died counts as free, although its header does not say so. */
static void find_given_back(struct segment *segment, uint32_t slot)
{
    bool all = pages_all(&segment->data, slot * segment->slot_stride, segment->slot_stride);
    enum slot_state state = segment->headers[slot].state;
    segment->given_back[slot] = (state == SLOT_FREE || state == SLOT_RECEIVING) && !all;
}

/* ---- make ---------------------------------------------------------------------------------------------------- */

tck_status_t segment_check(const struct segment_wish *wish, struct error *err)
{
    if (wish->image_bytes == 0 || wish->image_bytes > SLOT_STRIDE_MAX) {
        return error_set(err, TCK_ERR_INVAL, "no segment can hold an image of %" PRIu64 " bytes", wish->image_bytes);
    }
    if (wish->slot_count == 0 || wish->slot_count > CORE_SLOTS_MAX) {
        return error_set(err, TCK_ERR_INVAL, "a segment has 1 to %d slots, not %" PRIu32, CORE_SLOTS_MAX,
                         wish->slot_count);
    }
    if (wish->used == 0 || wish->used > wish->slot_count) {
        return error_set(err, TCK_ERR_INVAL, "%" PRIu32 " of %" PRIu32 " slots cannot be used", wish->used,
                         wish->slot_count);
    }
    return TCK_OK;
}

uint64_t segment_bytes(const struct segment_wish *wish)
{
    return wish->used * stride_of(wish->image_bytes) + meta_bytes_of(wish->image_bytes, wish->slot_count);
}

static struct segment *segment_alloc(void)
{
    struct segment *segment = calloc(1, sizeof(*segment));
    if (segment == NULL || pthread_mutex_init(&segment->lock, NULL) != 0) {
        free(segment);
        return NULL;
    }
    if (pthread_mutex_init(&segment->removal, NULL) != 0) {
        pthread_mutex_destroy(&segment->lock);
        free(segment);
        return NULL;
    }
    segment->data.fd = -1;
    segment->meta.fd = -1;
    return segment;
}

void segment_free(struct segment *segment)
{
    if (segment == NULL) {
        return;
    }
    pages_free(&segment->data);
    pages_free(&segment->meta);
    pthread_mutex_destroy(&segment->removal);
    pthread_mutex_destroy(&segment->lock);
    free(segment);
}

static tck_status_t make_files(struct segment *segment, const struct page_source *source, struct error *err)
{
    uint64_t meta_bytes = meta_bytes_of(segment->image_bytes, segment->slot_count);
    const struct pages_wish meta = {.bytes = meta_bytes, .touched = meta_bytes};
    const struct pages_wish data = {.bytes = segment->slot_count * segment->slot_stride,
                                    .touched = segment->used * segment->slot_stride,
                                    .huge = segment->image_bytes >= HUGE_PAGE_BYTES,
                                    .near = segment->data.near};
    if (getrandom(&segment->id, sizeof(segment->id), 0) != sizeof(segment->id)) {
        return error_set(err, TCK_ERR_IO, "no random id for a segment: %m");
    }
    tck_status_t status = pages_make(source, &meta, &segment->meta, err);
    if (status != TCK_OK) {
        return status;
    }
    return pages_make(source, &data, &segment->data, err);
}

tck_status_t segment_make(const char *job, const struct segment_wish *wish, const struct page_source *source,
                          struct segment **out, struct error *err)
{
    struct segment *segment = segment_alloc();
    if (segment == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a segment's own data");
    }
    memcpy(segment->job, job, strnlen(job, sizeof(segment->job) - 1));
    segment->shard = wish->shard;
    segment->image_bytes = wish->image_bytes;
    segment->slot_stride = stride_of(wish->image_bytes);
    segment->slot_count = wish->slot_count;
    segment->used = wish->used;
    segment->data.near = wish->near;
    tck_status_t status = make_files(segment, source, err);
    if (status != TCK_OK) {
        segment_free(segment);
        return status;
    }
    for (uint32_t slot = 0; slot < segment->slot_count; slot++) {
        write_free_header(segment, slot);
        find_given_back(segment, slot);
    }
    *out = segment;
    return TCK_OK;
}

/* ---- open ---------------------------------------------------------------------------------------------------- */

/* Finds the first whole header: its sizes tell where in the meta file each slot's pages lie. */
static tck_status_t find_header(const struct pages *meta, struct slot_header *out, struct error *err)
{
    for (uint64_t at = 0; at < meta->bytes; at += SLOT_HEADER_BYTES) {
        if (slot_header_decode(meta->base + at, out, NULL) == TCK_OK) {
            return TCK_OK;
        }
    }
    /* Only for the error: the first page tells why, or of which other format it is. */
    return slot_header_decode(meta->base, out, err);
}

/* Takes the sizes from a header and checks the files against them. */
static tck_status_t take_sizes(struct segment *segment, const struct slot_header *header, struct error *err)
{
    segment->shard = header->shard;
    segment->image_bytes = header->image_bytes;
    segment->slot_stride = header->slot_stride;
    segment->slot_count = header->slot_count;
    uint64_t data_bytes = header->slot_count * header->slot_stride;
    uint64_t meta_bytes = meta_bytes_of(header->image_bytes, header->slot_count);
    if (header->slot_stride != stride_of(header->image_bytes) || segment->data.bytes != data_bytes ||
        segment->meta.bytes != meta_bytes) {
        return error_set(err, TCK_ERR_CORRUPT,
                         "its header describes %" PRIu64 " + %" PRIu64 " bytes, the files have %" PRIu64 " + %" PRIu64,
                         data_bytes, meta_bytes, segment->data.bytes, segment->meta.bytes);
    }
    return TCK_OK;
}

static bool belongs(const struct segment *segment, uint32_t slot, const struct slot_header *header)
{
    return hash128_is(header->segment, segment->id) && strcmp(header->job, segment->job) == 0 && header->slot == slot &&
           hash128_is(header->shard, segment->shard) && header->image_bytes == segment->image_bytes &&
           header->slot_stride == segment->slot_stride && header->slot_count == segment->slot_count;
}

static tck_status_t take_slot(struct segment *segment, uint32_t slot, struct error *err)
{
    struct slot_header *header = &segment->headers[slot];
    const uint8_t *page_a = header_page(segment, slot, 0), *page_b = header_page(segment, slot, 1);
    struct slot_header in_b;
    struct error torn = {0};
    tck_status_t status = slot_header_newest(page_a, page_b, header, &torn);
    if (status == TCK_ERR_PROTO) {
        return error_set(err, status, "slot %" PRIu32 ": %s", slot, torn.text);
    }
    if (status != TCK_OK) {
        log_warn("slot %" PRIu32 " of a segment has lost its content and is free again: %s", slot, torn.text);
        write_free_header(segment, slot);
        return TCK_OK;
    }
    if (!belongs(segment, slot, header)) {
        return error_set(err, TCK_ERR_CORRUPT, "the header of slot %" PRIu32 " belongs to another segment, of job %s",
                         slot, header->job);
    }
    bool b_newest = slot_header_decode(page_b, &in_b, NULL) == TCK_OK && in_b.sequence == header->sequence;
    segment->newest_page[slot] = b_newest ? 1 : 0;
    return TCK_OK;
}

static tck_status_t take_slots(struct segment *segment, struct error *err)
{
    struct slot_header first;
    tck_status_t status = find_header(&segment->meta, &first, err);
    if (status == TCK_OK) {
        status = take_sizes(segment, &first, err);
    }
    for (uint32_t slot = 0; status == TCK_OK && slot < segment->slot_count; slot++) {
        status = take_slot(segment, slot, err);
        find_given_back(segment, slot);
    }
    segment->used = with_pages(segment); /* until segment_set_used */
    segment->opened = true;
    return status;
}

tck_status_t segment_open(struct hash128 id, const char *job, int data_fd, int meta_fd, struct segment **out,
                          struct error *err)
{
    struct segment *segment = segment_alloc();
    if (segment == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a segment's own data");
    }
    segment->id = id;
    memcpy(segment->job, job, strnlen(job, sizeof(segment->job) - 1));
    tck_status_t status = pages_map(data_fd, &segment->data, err);
    if (status == TCK_OK) {
        status = pages_map(meta_fd, &segment->meta, err);
    }
    if (status == TCK_OK) {
        status = take_slots(segment, err);
    }
    if (status != TCK_OK) {
        segment->data.fd = -1; /* both remain the caller's */
        segment->meta.fd = -1;
        segment_free(segment);
        return status;
    }
    *out = segment;
    return TCK_OK;
}

/* ---- verify -------------------------------------------------------------------------------------------------- */

static struct slot_header copy_header(struct segment *segment, uint32_t slot)
{
    pthread_mutex_lock(&segment->lock);
    struct slot_header header = segment->headers[slot];
    pthread_mutex_unlock(&segment->lock);
    return header;
}

/* Returns the error, prefixed with what the slot holds. */
static tck_status_t verify_failed(const struct segment *segment, const struct slot_header *header,
                                  const struct error *found, struct error *err)
{
    char shard[HASH128_TEXT];
    hash128_text(segment->shard, shard);
    return error_set(err, found->code, "shard %s version %" PRIu64 ".%" PRIu64 ": %s", shard, header->version.term,
                     header->version.step, found->text);
}

tck_status_t segment_verify_chunk(struct segment *segment, uint32_t slot, uint32_t i, struct error *err)
{
    struct error found = {0};
    uint32_t crc = chunk_crc(segment_image(segment, slot), segment->image_bytes, i);
    uint32_t expected = segment_crcs(segment, slot)[i];
    if (crc == expected) {
        return TCK_OK;
    }
    (void)error_set(&found, TCK_ERR_CORRUPT,
                    "slot %" PRIu32 ": chunk %" PRIu32 " of %" PRIu32 " has CRC %08" PRIx32
                    ", its table has %08" PRIx32,
                    slot, i, chunk_count(segment->image_bytes), crc, expected);
    struct slot_header header = copy_header(segment, slot);
    return verify_failed(segment, &header, &found, err);
}

tck_status_t segment_verify_root(struct segment *segment, uint32_t slot, struct error *err)
{
    struct error found = {0};
    struct slot_header header = copy_header(segment, slot);
    if (header.state != SLOT_VERIFIED) {
        return error_set(err, TCK_ERR_INVAL, "slot %" PRIu32 " is %s: it has no digests to check it against", slot,
                         slot_state_name(header.state));
    }
    if (hash128_is(digest_root(segment_crcs(segment, slot), segment->image_bytes), header.root)) {
        return TCK_OK;
    }
    (void)error_set(&found, TCK_ERR_CORRUPT, "slot %" PRIu32 ": its chunk CRCs do not match the root in its header",
                    slot);
    return verify_failed(segment, &header, &found, err);
}

bool segment_is_unproven(const struct segment *segment, uint32_t slot)
{
    return segment->unproven[slot];
}

void segment_set_unproven(struct segment *segment, uint32_t slot, bool unproven)
{
    segment->unproven[slot] = unproven;
}

bool segment_repair_header(struct segment *segment, uint32_t slot)
{
    struct slot_header found;
    const struct slot_header *known = &segment->headers[slot];
    tck_status_t status = slot_header_decode(header_page(segment, slot, segment->newest_page[slot]), &found, NULL);
    if (status == TCK_OK && found.sequence == known->sequence) {
        return false;
    }
    struct slot_header again = *known;
    segment_write_header(segment, slot, &again);
    return true;
}

/* ---- giving slots back when memory is short ------------------------------------------------------------------ */

bool segment_can_give_back(const struct segment *segment, bool stored_here)
{
    enum pin_state pins = seals_pins(seal_of(segment, 0));
    return pages_removable(&segment->data) && (pins == PINS_NONE || (pins == PINS_UNKNOWN && !stored_here));
}

bool segment_is_given_back(const struct segment *segment, uint32_t slot)
{
    return segment->given_back[slot];
}

void segment_set_given_back(struct segment *segment, uint32_t slot, bool given_back)
{
    segment->given_back[slot] = given_back;
}

bool segment_has_pages(const struct segment *segment, uint32_t slot)
{
    return pages_any(&segment->data, slot * segment->slot_stride, segment->slot_stride);
}

void segment_announce(struct segment *segment)
{
    pthread_mutex_lock(&segment->removal);
    if (seals_pins(seal_of(segment, 0)) == PINS_NONE) {
        seals_set_pins(seal_of(segment, 0), PINS_UNKNOWN);
    }
    pthread_mutex_unlock(&segment->removal);
}

/* The lock is held for so few bytes that segment_announce never waits for long. */
static tck_status_t remove_part(struct segment *segment, uint64_t offset, uint64_t bytes, bool stored_here,
                                struct error *err)
{
    tck_status_t status = TCK_ERR_BUSY;
    pthread_mutex_lock(&segment->removal);
    if (segment_can_give_back(segment, stored_here)) {
        status = pages_remove(&segment->data, offset, bytes, err);
    }
    pthread_mutex_unlock(&segment->removal);
    return status == TCK_ERR_BUSY ? error_set(err, TCK_ERR_BUSY, "a trainer may have pinned them by now") : status;
}

tck_status_t segment_give_back(struct segment *segment, uint32_t slot, bool stored_here, struct error *err)
{
    uint64_t at = slot * segment->slot_stride, end = at + segment->slot_stride;
    tck_status_t status = TCK_OK;
    for (uint64_t bytes; at < end && status == TCK_OK; at += bytes) {
        bytes = end - at < REMOVED_AT_ONCE ? end - at : REMOVED_AT_ONCE;
        status = remove_part(segment, at, bytes, stored_here, err);
    }
    return status;
}

tck_status_t segment_take_back(const struct segment *segment, uint32_t slot, uint32_t threads, struct error *err)
{
    return pages_refill(&segment->data, slot * segment->slot_stride, segment->slot_stride, threads, err);
}

/* ---- how many slots have pages ------------------------------------------------------------------------------- */

uint32_t segment_lacking(const struct segment *segment)
{
    uint32_t have = with_pages(segment);
    return segment->used > have ? segment->used - have : 0;
}

uint64_t segment_held_bytes(const struct segment *segment)
{
    return (with_pages(segment) + segment_lacking(segment)) * segment->slot_stride + segment->meta.bytes;
}

uint64_t segment_needed_bytes(const struct segment *segment)
{
    return segment_can_give_back(segment, false) ? segment->used * segment->slot_stride + segment->meta.bytes
                                                 : segment_held_bytes(segment);
}

void segment_set_used(struct segment *segment, uint32_t slots)
{
    struct error why = {0};
    segment->used = slots;
    for (uint32_t slot = segment->slot_count; slot-- > 0 && with_pages(segment) > slots;) {
        bool free = segment->headers[slot].state == SLOT_FREE && !segment->given_back[slot];
        if (free && segment_can_give_back(segment, false)) {
            segment->given_back[slot] = segment_give_back(segment, slot, false, &why) == TCK_OK;
        }
    }
}
