/* SPDX-License-Identifier: Apache-2.0
 * The set of segments: the cap on their bytes, their stored names, and their adoption after a restart. */
#include "tiers/memory.h"

#include "base/failpoint.h"
#include "base/id_map.h"
#include "base/log.h"
#include "tiers/segment_impl.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PARKED_NAME (2 + HASH128_TEXT)

/* The two files of a segment, by the first letter of their stored names. */
enum part { PART_DATA, PART_META, PARTS };
static const char part_letters[PARTS] = {'d', 'm'};

/* Stored files that were found, until both files of a segment are complete. */
struct found {
    struct hash128 id;
    int fds[PARTS]; /* -1: not found yet */
};

struct memory {
    struct memory_setup setup;
    char job[CONFIG_NAME];
    struct page_source *source;
    struct segment **segments; /* sorted by shard id */
    size_t count;
    struct found *found;
    struct id_map found_places;
    size_t found_count;
};

tck_status_t memory_new(const struct memory_setup *setup, struct memory **out, struct error *err)
{
    struct memory *memory = calloc(1, sizeof(*memory));
    if (memory == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the memory tier's own data");
    }
    memory->setup = *setup;
    snprintf(memory->job, sizeof(memory->job), "%s", setup->job);
    memory->setup.job = memory->job;
    memory->setup.hugetlb_mount = NULL; /* not kept */
    tck_status_t status = page_source_new(setup->hugetlb_mount, setup->threads, setup->progress, &memory->source, err);
    if (status != TCK_OK) {
        free(memory);
        return status;
    }
    *out = memory;
    return TCK_OK;
}

static void found_close(struct found *found)
{
    for (int part = 0; part < PARTS; part++) {
        if (found->fds[part] >= 0) {
            close(found->fds[part]);
        }
    }
}

void memory_free(struct memory *memory)
{
    if (memory == NULL) {
        return;
    }
    for (size_t i = 0; i < memory->count; i++) {
        segment_free(memory->segments[i]);
    }
    for (size_t i = 0; i < memory->found_count; i++) {
        found_close(&memory->found[i]);
    }
    free(memory->segments);
    free(memory->found);
    id_map_free(&memory->found_places);
    page_source_free(memory->source);
    free(memory);
}

/* ---- the sorted array ---------------------------------------------------------------------------------------- */

/* The index at which the shard's segment is, or would be inserted. */
static size_t position(const struct memory *memory, struct hash128 shard)
{
    size_t low = 0, high = memory->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (hash128_cmp(memory->segments[middle]->shard, shard) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct segment *memory_find(const struct memory *memory, struct hash128 shard)
{
    size_t at = position(memory, shard);
    bool found = at < memory->count && hash128_is(memory->segments[at]->shard, shard);
    return found ? memory->segments[at] : NULL;
}

size_t memory_count(const struct memory *memory)
{
    return memory->count;
}

struct segment *memory_at(const struct memory *memory, size_t i)
{
    return memory->segments[i];
}

uint64_t memory_used_bytes(const struct memory *memory)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < memory->count; i++) {
        bytes += segment_held_bytes(memory->segments[i]);
    }
    return bytes;
}

uint64_t memory_cap_bytes(const struct memory *memory)
{
    return memory->setup.cap_bytes;
}

static tck_status_t insert(struct memory *memory, struct segment *segment, struct error *err)
{
    size_t at = position(memory, segment->shard);
    struct segment **grown = realloc(memory->segments, (memory->count + 1) * sizeof(struct segment *));
    if (grown == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a list of %zu segments", memory->count + 1);
    }
    memory->segments = grown;
    memmove(&grown[at + 1], &grown[at], (memory->count - at) * sizeof(struct segment *));
    grown[at] = segment;
    memory->count++;
    return TCK_OK;
}

static void take_out(struct memory *memory, struct segment *segment)
{
    size_t at = position(memory, segment->shard);
    memory->count--;
    memmove(&memory->segments[at], &memory->segments[at + 1], (memory->count - at) * sizeof(struct segment *));
}

/* ---- stored names -------------------------------------------------------------------------------------------- */

static void parked_name(struct hash128 id, enum part part, char out[PARKED_NAME])
{
    char hex[HASH128_TEXT];
    hash128_text(id, hex);
    snprintf(out, PARKED_NAME, "%c.%s", part_letters[part], hex);
}

static bool parse_parked_name(const char *name, struct hash128 *id_out, enum part *part_out)
{
    if (strlen(name) != PARKED_NAME - 1 || name[1] != '.' || !hash128_parse(name + 2, id_out)) {
        return false;
    }
    *part_out = name[0] == part_letters[PART_DATA] ? PART_DATA : PART_META;
    return name[0] == part_letters[*part_out];
}

static void drop_fd(const struct memory *memory, struct hash128 id)
{
    char name[PARKED_NAME];
    for (int part = 0; part < PARTS && memory->setup.drop_fd != NULL; part++) {
        parked_name(id, (enum part)part, name);
        memory->setup.drop_fd(memory->setup.ctx, name);
    }
}

static tck_status_t store_fd(const struct memory *memory, const struct segment *segment, struct error *err)
{
    const int fds[PARTS] = {[PART_DATA] = segment->data.fd, [PART_META] = segment->meta.fd};
    char name[PARKED_NAME];
    for (int part = 0; part < PARTS && memory->setup.store_fd != NULL; part++) {
        parked_name(segment->id, (enum part)part, name);
        failpoint(segment, fdstore);
        tck_status_t status = memory->setup.store_fd(memory->setup.ctx, name, fds[part], err);
        if (status != TCK_OK) {
            drop_fd(memory, segment->id);
            return status;
        }
    }
    return TCK_OK;
}

/* ---- add and remove ------------------------------------------------------------------------------------------ */

static void log_segment(const char *what, const struct segment *segment)
{
    char shard[HASH128_TEXT];
    hash128_text(segment->shard, shard);
    log_info("%s segment of shard %s: %" PRIu64 " bytes in %" PRIu32 " slots, %" PRIu32 " byte pages, %s%s%s", what,
             shard, segment_held_bytes(segment), segment->used, segment->data.page_bytes, segment->data.way,
             cpus_is_none(&segment->data.near) ? "" : ", for the NUMA node of its rank",
             segment->data.sealed ? "" : ", not sealed (a trainer could shrink it)");
}

/* Slots that are no longer needed do not count: they are given back as soon as they are free. */
static uint64_t needed_bytes(const struct memory *memory)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < memory->count; i++) {
        bytes += segment_needed_bytes(memory->segments[i]);
    }
    return bytes;
}

static tck_status_t check_cap(const struct memory *memory, uint64_t used, uint64_t wanted, struct error *err)
{
    uint64_t cap = memory->setup.cap_bytes;
    if (used > cap || wanted > cap - used) {
        return error_set(err, TCK_ERR_NOSPC,
                         "%" PRIu64 " bytes wanted, %" PRIu64 " in use, %" PRIu64 " allowed (memory_cap_bytes)", wanted,
                         used, cap);
    }
    return TCK_OK;
}

/* Makes, stores and inserts a segment; undoes it in reverse order on failure. */
static tck_status_t add_new(struct memory *memory, const struct segment_wish *wish, struct segment **out,
                            struct error *err)
{
    struct segment *segment;
    tck_status_t status = segment_check(wish, err);
    if (status == TCK_OK) {
        status = check_cap(memory, needed_bytes(memory), segment_bytes(wish), err);
    }
    if (status == TCK_OK) {
        status = segment_make(memory->job, wish, memory->source, &segment, err);
    }
    if (status != TCK_OK) {
        return status;
    }
    status = store_fd(memory, segment, err);
    if (status != TCK_OK) {
        goto free_segment;
    }
    status = insert(memory, segment, err);
    if (status != TCK_OK) {
        goto unpark_segment;
    }
    failpoint(segment, stored);
    log_segment("new", segment);
    *out = segment;
    return TCK_OK;
unpark_segment:
    drop_fd(memory, segment->id);
free_segment:
    segment_free(segment);
    return status;
}

static void warn_not_allocated(const struct segment *segment, const struct error *why)
{
    char shard[HASH128_TEXT];
    hash128_text(segment->shard, shard);
    log_warn("a slot of shard %s that this node needs again has no memory yet, and is allocated as soon as there is "
             "enough: %s",
             shard, why->text);
}

static void allocate_used(const struct memory *memory, struct segment *segment, uint32_t lacking)
{
    struct error why = {0};
    for (uint32_t slot = 0; slot < segment->slot_count && segment_lacking(segment) > lacking; slot++) {
        if (segment->given_back[slot]) {
            if (segment_take_back(segment, slot, memory->setup.threads, &why) != TCK_OK) {
                warn_not_allocated(segment, &why);
                return;
            }
            segment->given_back[slot] = false;
        }
    }
}

/* What was given back because memory was short is not allocated here, but when there is enough again
 * (agent/pressure/pressure.c). Of a segment that was opened it is not known why pages are missing. */
static tck_status_t use_slots(const struct memory *memory, struct segment *segment, uint32_t slots, struct error *err)
{
    uint32_t lacking = segment->opened ? segment->slot_count : segment_lacking(segment), used = segment->used;
    uint64_t before = needed_bytes(memory);
    segment_set_used(segment, slots);
    uint64_t after = needed_bytes(memory);
    tck_status_t status = after > before ? check_cap(memory, before, after - before, err) : TCK_OK;
    if (status != TCK_OK) {
        segment->used = used;
        return status;
    }
    allocate_used(memory, segment, lacking);
    segment->opened = false;
    return TCK_OK;
}

tck_status_t memory_add(struct memory *memory, const struct segment_wish *wish, struct segment **out, struct error *err)
{
    char hex[HASH128_TEXT];
    struct error why = {0};
    struct segment *old = memory_find(memory, wish->shard);
    tck_status_t status = TCK_OK;
    if (old == NULL) {
        status = add_new(memory, wish, out, &why);
    } else if (old->image_bytes != wish->image_bytes || old->slot_count != wish->slot_count) {
        status = error_set(&why, TCK_ERR_EXIST,
                           "it has %" PRIu32 " slots of %" PRIu64 " bytes, %" PRIu32 " of %" PRIu64 " are wanted",
                           old->slot_count, old->image_bytes, wish->slot_count, wish->image_bytes);
    } else {
        *out = old;
        old->data.near = wish->near; /* for pages that it gets from now on */
        status = use_slots(memory, old, wish->used, &why);
    }
    if (status != TCK_OK) {
        hash128_text(wish->shard, hex);
        return error_set(err, status, "segment of shard %s: %s", hex, why.text);
    }
    return TCK_OK;
}

uint64_t memory_needed(const struct memory *memory, const struct segment_wish *wish)
{
    struct error ignored;
    bool fits = memory_find(memory, wish->shard) == NULL && segment_check(wish, &ignored) == TCK_OK;
    return fits ? segment_bytes(wish) : 0;
}

void memory_remove(struct memory *memory, struct segment *segment)
{
    take_out(memory, segment);
    drop_fd(memory, segment->id);
    segment_free(segment);
}

/* ---- coming back --------------------------------------------------------------------------------------------- */

static struct found *found_entry(struct memory *memory, struct hash128 id)
{
    uint32_t place = id_map_find(&memory->found_places, id.lo);
    if (place != ID_MAP_NONE) { /* ids are random, so equal halves mean equal ids */
        return hash128_is(memory->found[place].id, id) ? &memory->found[place] : NULL;
    }
    struct found *grown = realloc(memory->found, (memory->found_count + 1) * sizeof(*grown));
    if (grown == NULL) {
        return NULL;
    }
    memory->found = grown;
    if (!id_map_put(&memory->found_places, id.lo, (uint32_t)memory->found_count)) {
        return NULL;
    }
    struct found *entry = &grown[memory->found_count++];
    *entry = (struct found){.id = id, .fds = {-1, -1}};
    return entry;
}

void memory_adopt(struct memory *memory, const char *name, int fd)
{
    struct hash128 id;
    enum part part;
    struct found *entry;
    if (!parse_parked_name(name, &id, &part)) {
        log_warn("parked file %s does not belong to a segment and is dropped", name);
        if (memory->setup.drop_fd != NULL) {
            memory->setup.drop_fd(memory->setup.ctx, name);
        }
        close(fd);
        return;
    }
    entry = found_entry(memory, id);
    if (entry == NULL || entry->fds[part] >= 0) {
        /* It stays open, since the list of stored files refers to it: another process may be able to adopt it. */
        log_warn("parked file %s %s", name, entry == NULL ? "cannot be adopted: no memory" : "exists twice");
        return;
    }
    entry->fds[part] = fd;
}

/* The segment owns both files on success. */
static tck_status_t adopt_pair(struct memory *memory, const struct found *found, struct error *err)
{
    struct segment *segment;
    if (found->fds[PART_DATA] < 0 || found->fds[PART_META] < 0) {
        return error_set(err, TCK_ERR_NOENT, "its %s file is missing", found->fds[PART_DATA] < 0 ? "data" : "meta");
    }
    tck_status_t status =
        segment_open(found->id, memory->job, found->fds[PART_DATA], found->fds[PART_META], &segment, err);
    if (status != TCK_OK) {
        return status;
    }
    status = memory_find(memory, segment->shard) == NULL
                 ? insert(memory, segment, err)
                 : error_set(err, TCK_ERR_EXIST, "another segment has the same shard");
    if (status != TCK_OK) {
        segment->data.fd = -1; /* both remain the caller's */
        segment->meta.fd = -1;
        segment_free(segment);
        return status;
    }
    log_segment("adopted", segment);
    return TCK_OK;
}

void memory_adopted(struct memory *memory)
{
    char id[HASH128_TEXT];
    for (size_t i = 0; i < memory->found_count; i++) {
        struct error err = {0};
        struct found *found = &memory->found[i];
        if (adopt_pair(memory, found, &err) != TCK_OK) {
            hash128_text(found->id, id);
            log_warn("parked segment %s is dropped: %s", id, err.text);
            drop_fd(memory, found->id);
            found_close(found);
        }
    }
    free(memory->found);
    id_map_free(&memory->found_places);
    memory->found = NULL;
    memory->found_count = 0;
}
