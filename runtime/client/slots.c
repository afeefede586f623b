/* SPDX-License-Identifier: Apache-2.0
 * Mapping the memory that the agent holds for this rank's shards. */
#include "client/slots.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)

/* ---- one shard ----------------------------------------------------------------------------------------------- */

static void unmap(const struct slots *slots, struct shard_slots *shard)
{
    if (shard->pinned) {
        slots->pins.unpin(slots->pins.ctx, shard->base);
        shard->pinned = false;
        seals_set_pins(shard->seals, PINS_NONE);
    }
    if (shard->base != NULL) {
        munmap(shard->base, shard->bytes);
        shard->base = NULL;
    }
    if (shard->seals != NULL) {
        munmap((uint8_t *)shard->seals - shard->seals_window.skip, shard->seals_window.bytes);
        shard->seals = NULL;
    }
}

static bool is_mapped(const struct shard_slots *shard, const struct stat *st, size_t bytes)
{
    return shard->base != NULL && shard->bytes == bytes && shard->dev == st->st_dev && shard->ino == st->st_ino;
}

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Enters a range of the file into the page table. The mapping joins those beside it. */
static bool populate(uint8_t *base, off_t from, off_t to, int fd)
{
    return mmap(base + from, (size_t)(to - from), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd,
                from) != MAP_FAILED;
}

/* All pages that there are, or each would cost a fault in the first snapshots. Slots that the agent has given back have
 * none: to allocate them here could take the memory whose lack was the reason. False: with errno. */
static bool populate_pages(uint8_t *base, size_t bytes, int fd)
{
    off_t end = (off_t)bytes, at = 0;

    while (at < end) {
        off_t from = lseek(fd, at, SEEK_DATA);

        if (from < 0 && errno != ENXIO) {
            return false;
        }
        from = from < 0 || from > end ? end : from;
        at = from < end ? lseek(fd, from, SEEK_HOLE) : end;
        if (at < 0) {
            return false;
        }
        at = at > end ? end : at;
        if (from < at && !populate(base, from, at, fd)) {
            return false;
        }
    }
    return true;
}

/* Huge pages are mapped as such only from a boundary of theirs on; the kernel chooses one by itself only where
 * shmem_enabled allows huge pages. */
static void *map_aligned(size_t bytes, int fd)
{
    size_t room = bytes + HUGE_PAGE;
    uint8_t *from = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t before = (size_t)(-(uintptr_t)from % HUGE_PAGE);
    uint8_t *base;
    size_t used;

    if (from == MAP_FAILED) {
        return MAP_FAILED;
    }
    base = mmap(from + before, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    if (base == MAP_FAILED || !populate_pages(base, bytes, fd)) {
        int saved_errno = errno;

        munmap(from, room);
        errno = saved_errno;
        return MAP_FAILED;
    }
    if (before > 0) {
        munmap(from, before);
    }
    used = page_end(bytes, page_bytes());
    munmap(base + used, room - before - used);
    return base;
}

static tck_status_t map_fd(const struct slots *slots, struct shard_slots *shard, int fd, struct error *err)
{
    size_t bytes = shard->segment.slot_stride * shard->segment.slot_count;
    struct stat st;
    void *base;

    if (fstat(fd, &st) < 0 || st.st_size < 0 || (uint64_t)st.st_size < bytes) {
        return error_set(err, TCK_ERR_PROTO, "a segment is smaller than its slots");
    }
    if (is_mapped(shard, &st, bytes)) {
        return TCK_OK;
    }
    base = map_aligned(bytes, fd);
    if (base == MAP_FAILED) {
        return error_set(err, status_of_errno(errno), "map a segment of %zu bytes: %m", bytes);
    }
    unmap(slots, shard);
    shard->base = base;
    shard->bytes = bytes;
    shard->dev = st.st_dev;
    shard->ino = st.st_ino;
    return TCK_OK;
}

/* Maps the seals at the end of the segment's second file. */
static tck_status_t map_seals(struct shard_slots *shard, int fd, struct error *err)
{
    struct page_window window;
    struct stat st;
    uint8_t *base;

    if (shard->seals != NULL) {
        return TCK_OK; /* they belong to the slots, which are the same */
    }
    if (fstat(fd, &st) < 0 || st.st_size < SEALS_BYTES || st.st_size % SEALS_BYTES != 0) {
        return error_set(err, TCK_ERR_PROTO, "a segment has no seals");
    }
    window = page_window_of((uint64_t)st.st_size - SEALS_BYTES, SEALS_BYTES, page_bytes());
    base = mmap(NULL, window.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)window.offset);
    if (base == MAP_FAILED) {
        return error_set(err, status_of_errno(errno), "map the seals of a segment: %m");
    }
    shard->seals = (struct seal *)(void *)(base + window.skip);
    shard->seals_window = window;
    return TCK_OK;
}

static bool has_all_pages(const struct shard_slots *shard, int fd)
{
    off_t hole = lseek(fd, 0, SEEK_HOLE);

    return hole >= 0 && (uint64_t)hole >= shard->bytes;
}

/* The agent must know before anything is pinned: it removes pages of free slots when memory is short. Slots that have
 * lost pages are filled through staging memory, because pinning would allocate them. */
static void pin(const struct slots *slots, struct shard_slots *shard, int fd)
{
    if (shard->pinned) {
        return;
    }
    if (shard->pinnable && has_all_pages(shard, fd)) {
        seals_set_pins(shard->seals, PINS_MADE);
        shard->pinned = slots->pins.pin(slots->pins.ctx, shard->base, shard->bytes, shard->segment.page_bytes);
    }
    if (!shard->pinned) {
        seals_set_pins(shard->seals, PINS_NONE);
    }
}

static tck_status_t map_shard(const struct slots *slots, struct shard_slots *shard, struct session *session,
                              struct error *err)
{
    int fds[2] = {-1, -1};
    tck_status_t status = session_segment_fds(session, shard->segment.shard, fds, err);

    if (status != TCK_OK) {
        return status;
    }
    status = map_fd(slots, shard, fds[0], err);
    if (status == TCK_OK && shard->segment.stored_here) {
        status = map_seals(shard, fds[1], err);
        if (status == TCK_OK) {
            pin(slots, shard, fds[0]); /* others are read once */
        }
    }
    close(fds[0]);
    close(fds[1]);
    return status;
}

/* ---- all shards ---------------------------------------------------------------------------------------------- */

static tck_status_t check_segment(const struct msg_segment *segment, const struct shard *shard, struct error *err)
{
    if (!hash128_is(segment->shard, shard->id)) {
        return error_set(err, TCK_ERR_PROTO, "the agent answers with other shards than were registered");
    }
    if (segment->slot_count == 0 || segment->slot_count > MESSAGE_SLOTS_MAX ||
        segment->slot_stride % IMAGE_ALIGN != 0 || segment->slot_stride < shard->image_bytes ||
        segment->slot_stride > SIZE_MAX / MESSAGE_SLOTS_MAX) {
        return error_set(err, TCK_ERR_PROTO, "%u slots of %" PRIu64 " bytes for an image of %" PRIu64,
                         segment->slot_count, segment->slot_stride, shard->image_bytes);
    }
    return TCK_OK;
}

static tck_status_t check_segments(const struct msg_segments *segments, const struct layout *layout, struct error *err)
{
    tck_status_t status = TCK_OK;

    if (segments->count != layout->shard_count) {
        return error_set(err, TCK_ERR_PROTO, "the agent has %u shards of this rank, not %u", segments->count,
                         layout->shard_count);
    }
    for (uint32_t i = 0; i < segments->count && status == TCK_OK; i++) {
        status = check_segment(&segments->segments[i], &layout->shards[i], err);
    }
    return status;
}

static tck_status_t make_shards(struct slots *slots, uint32_t count, struct error *err)
{
    if (slots->shards != NULL) {
        return TCK_OK;
    }
    slots->shards = calloc(count + (size_t)1, sizeof(*slots->shards));
    if (slots->shards == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for %u shards", count);
    }
    slots->count = count;
    return TCK_OK;
}

static bool lies_on_devices(const struct layout *layout, const struct shard *shard)
{
    for (uint32_t i = 0; i < shard->record_count; i++) {
        if (layout->records[shard->records[i]].memory == TCK_CUDA) {
            return true;
        }
    }
    return false;
}

tck_status_t slots_adopt(struct slots *slots, struct session *session, const struct layout *layout,
                         struct msg_segments *segments, struct error *err)
{
    tck_status_t status = check_segments(segments, layout, err);

    if (status == TCK_OK) {
        status = make_shards(slots, layout->shard_count, err);
    }
    for (uint32_t i = 0; i < layout->shard_count && status == TCK_OK; i++) {
        slots->shards[i].segment = segments->segments[i];
        slots->shards[i].root_made = false;
        slots->shards[i].pinnable = lies_on_devices(layout, &layout->shards[i]);
        if (segments->segments[i].stored_here) {
            status = map_shard(slots, &slots->shards[i], session, err);
        }
    }
    free(segments->segments);
    segments->segments = NULL;
    return status;
}

tck_status_t slots_map(struct slots *slots, uint32_t shard, struct session *session, struct error *err)
{
    return map_shard(slots, &slots->shards[shard], session, err);
}

void slots_unmap(struct slots *slots, uint32_t shard)
{
    unmap(slots, &slots->shards[shard]);
}

void slots_close(struct slots *slots)
{
    for (uint32_t i = 0; i < slots->count; i++) {
        unmap(slots, &slots->shards[i]);
    }
    free(slots->shards);
    *slots = (struct slots){0};
}

/* ---- the fixed part of an image ------------------------------------------------------------------------------ */

void image_put_heads(uint8_t *image, const struct layout *layout, const struct shard *shard)
{
    for (uint32_t i = 0; i < shard->record_count; i++) {
        const struct record *record = &layout->records[shard->records[i]];

        if (record->head_bytes > 0) {
            memcpy(image + record->image_offset - record->head_bytes, record->head, record->head_bytes);
        }
    }
}

/* Written for each snapshot: a change to the slot since its last use would otherwise enter its digests, and with them
 * every copy. */
void slot_prepare(const struct shard_slots *slots, uint32_t slot, const struct layout *layout,
                  const struct shard *shard)
{
    uint8_t *image = slot_image(slots, slot);
    uint64_t at = shard->header_bytes;

    memcpy(image, shard->header, shard->header_bytes);
    for (uint32_t i = 0; i < shard->record_count; i++) {
        const struct record *record = &layout->records[shard->records[i]];

        memset(image + at, 0, record->image_offset - at);
        at = record->image_offset + record->bytes;
    }
    memset(image + at, 0, shard->image_bytes - at);
    image_put_heads(image, layout, shard);
}
