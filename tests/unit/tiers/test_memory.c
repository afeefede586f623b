/* SPDX-License-Identifier: Apache-2.0
 * Segments stay within their limit, cannot be shrunk, and are rebuilt from their files alone after a crash. */
#include "../wish.h"
#include "base/seal.h"
#include "tiers/memory.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOTS       3
#define SMALL_BYTES (64u << 10)
#define IMAGE_BYTES ((uint64_t)CHUNK_BYTES + 4096) /* two chunks */
#define CAP_BYTES   ((uint64_t)256 << 20)
#define PARKED_MAX  16
#define NAME_BYTES  64

static const struct hash128 SHARD = {7, 1}, OTHER = {7, 2};

/* Replaces the service manager: keeps duplicates, as a supervisor does. */
struct stored {
    char names[PARKED_MAX][NAME_BYTES];
    int fds[PARKED_MAX];
    int count;
    int refuse_from; /* number of the call that fails, -1 none */
};

static tck_status_t store_fd(void *ctx, const char *name, int fd, struct error *err)
{
    struct stored *stored = ctx;
    if (stored->count == stored->refuse_from) {
        return error_set(err, TCK_ERR_UNREACHABLE, "no supervisor keeps %s", name);
    }
    snprintf(stored->names[stored->count], NAME_BYTES, "%s", name);
    stored->fds[stored->count++] = dup(fd);
    return TCK_OK;
}

static void drop_fd(void *ctx, const char *name)
{
    struct stored *stored = ctx;
    for (int i = 0; i < stored->count; i++) {
        if (strcmp(stored->names[i], name) == 0) {
            close(stored->fds[i]);
            stored->count--;
            memcpy(stored->names[i], stored->names[stored->count], NAME_BYTES);
            stored->fds[i] = stored->fds[stored->count];
            return;
        }
    }
}

static void parked_free(struct stored *stored)
{
    while (stored->count > 0) {
        close(stored->fds[--stored->count]);
    }
}

static int parked_fd(const struct stored *stored, char letter)
{
    for (int i = 0; i < stored->count; i++) {
        if (stored->names[i][0] == letter) {
            return stored->fds[i];
        }
    }
    cr_assert_fail("no parked file of kind %c", letter);
    return -1;
}

static struct memory *memory_of(const char *job, uint64_t cap, struct stored *stored)
{
    struct memory *memory;
    struct error err = {0};
    struct memory_setup setup = {.job = job, .cap_bytes = cap, .hugetlb_mount = "", .threads = 2};
    if (stored != NULL) {
        setup.store_fd = store_fd;
        setup.drop_fd = drop_fd;
        setup.ctx = stored;
    }
    cr_assert_eq(memory_new(&setup, &memory, &err), TCK_OK, "%s", err.text);
    return memory;
}

static struct segment *add(struct memory *memory, struct hash128 shard, uint64_t bytes)
{
    struct segment *segment;
    struct error err = {0};
    cr_assert_eq(add_segment(memory, wish_of(shard, bytes, SLOTS, SLOTS), &segment, &err), TCK_OK, "%s", err.text);
    return segment;
}

/* Does what a restarted agent does. */
static struct memory *back_from(struct stored *stored, const char *job)
{
    struct memory *memory = memory_of(job, CAP_BYTES, stored);
    for (int i = 0; i < stored->count; i++) {
        memory_adopt(memory, stored->names[i], dup(stored->fds[i]));
    }
    memory_adopted(memory);
    return memory;
}

/* Fills the slot and writes the header that an agent writes after digesting it. */
static void save(struct segment *segment, uint32_t slot, struct version version)
{
    struct segment_info info = segment_info(segment);
    struct slot_header header = {.version = version, .layout = {3, 3}, .state = SLOT_VERIFIED, .committed = true};
    for (uint64_t i = 0; i < info.image_bytes; i++) {
        segment_image(segment, slot)[i] = (uint8_t)(i * 31 + version.step);
    }
    header.root = digest_image(segment_image(segment, slot), info.image_bytes, segment_crcs(segment, slot));
    segment_write_header(segment, slot, &header);
}

/* The two header pages of a slot in a mapping of the stored meta file. */
static uint8_t *map_meta(const struct stored *stored)
{
    uint8_t *meta = mmap(NULL, 2 * SLOT_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, parked_fd(stored, 'm'), 0);
    cr_assert_neq(meta, MAP_FAILED);
    return meta;
}

static uint8_t *newest_page(uint8_t *meta)
{
    struct slot_header a, b;
    bool a_whole = slot_header_decode(meta, &a, NULL) == TCK_OK;
    bool b_whole = slot_header_decode(meta + SLOT_HEADER_BYTES, &b, NULL) == TCK_OK;
    return a_whole && (!b_whole || a.sequence > b.sequence) ? meta : meta + SLOT_HEADER_BYTES;
}

/* ---- add ------------------------------------------------------------------------------------------------------- */

Test(memory, gives_each_slot_zeroed_room_and_a_free_header)
{
    struct memory *memory = memory_of("job", CAP_BYTES, NULL);
    struct segment *segment = add(memory, SHARD, IMAGE_BYTES);

    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        cr_assert_eq(segment_header(segment, slot)->state, SLOT_FREE);
        cr_assert_eq(segment_image(segment, slot)[0], 0);
        cr_assert_eq(segment_image(segment, slot)[IMAGE_BYTES - 1], 0);
        cr_assert_eq(segment_image(segment, slot),
                     segment_image(segment, 0) + slot * segment_info(segment).slot_stride);
    }
    memory_free(memory);
}

Test(memory, allocates_every_page_before_it_is_used)
{
    struct memory *memory = memory_of("job", CAP_BYTES, NULL);
    struct segment *segment = add(memory, SHARD, IMAGE_BYTES);
    struct stat st;

    cr_assert_eq(fstat(segment_info(segment).data_fd, &st), 0);
    cr_assert_geq(st.st_blocks * 512, st.st_size);
    memory_free(memory);
}

Test(memory, strides_by_huge_pages_only_where_an_image_fills_one)
{
    struct memory *memory = memory_of("job", CAP_BYTES, NULL);

    cr_assert_eq(segment_info(add(memory, SHARD, SMALL_BYTES + 4096)).slot_stride, SMALL_BYTES + 4096);
    cr_assert_eq(segment_info(add(memory, OTHER, IMAGE_BYTES)).slot_stride, 6u << 20);
    memory_free(memory);
}

Test(memory, reports_the_page_size_it_got)
{
    struct memory *memory = memory_of("job", CAP_BYTES, NULL);
    uint32_t page_bytes = segment_info(add(memory, SHARD, IMAGE_BYTES)).page_bytes;

    cr_assert(page_bytes == 4096 || page_bytes == 2u << 20, "%u", page_bytes);
    cr_assert_eq(segment_info(add(memory, OTHER, SMALL_BYTES)).page_bytes, 4096);
    memory_free(memory);
}

Test(memory, names_bytes_wanted_in_use_and_allowed_when_the_cap_is_reached)
{
    struct memory *memory = memory_of("job", 1u << 20, NULL);
    struct segment *segment;
    struct error err = {0};
    char want[128];

    add(memory, SHARD, SMALL_BYTES);
    uint64_t used = memory_used_bytes(memory);
    cr_assert_eq(add_segment(memory, wish_of(OTHER, 1u << 20, 1, 1), &segment, &err), TCK_ERR_NOSPC);
    snprintf(want, sizeof(want), "%u bytes wanted, %lu in use, %u allowed", (1u << 20) + 4 * 4096, (unsigned long)used,
             1u << 20);
    cr_assert_not_null(strstr(err.text, want), "%s", err.text);
    cr_assert_eq(memory_used_bytes(memory), used);
    cr_assert_eq(memory_count(memory), 1);
    memory_free(memory);
}

Test(memory, checks_the_machines_memory_before_it_touches_more_than_there_is)
{
    struct memory *memory = memory_of("job", UINT64_MAX, NULL);
    struct segment *segment;
    struct error err = {0};

    cr_assert_eq(add_segment(memory, wish_of(SHARD, (uint64_t)1 << 45, SLOTS, SLOTS), &segment, &err), TCK_ERR_NOSPC);
    cr_assert_not_null(strstr(err.text, "bytes available in "), "%s", err.text);
    cr_assert_eq(memory_used_bytes(memory), 0);
    memory_free(memory);
}

Test(memory, refuses_sizes_that_no_segment_can_have)
{
    struct memory *memory = memory_of("job", UINT64_MAX, NULL);
    struct segment *segment;

    cr_assert_eq(add_segment(memory, wish_of(SHARD, 0, SLOTS, SLOTS), &segment, NULL), TCK_ERR_INVAL);
    cr_assert_eq(add_segment(memory, wish_of(SHARD, UINT64_MAX, SLOTS, SLOTS), &segment, NULL), TCK_ERR_INVAL);
    cr_assert_eq(add_segment(memory, wish_of(SHARD, SMALL_BYTES, 0, 0), &segment, NULL), TCK_ERR_INVAL);
    cr_assert_eq(
        add_segment(memory, wish_of(SHARD, SMALL_BYTES, CORE_SLOTS_MAX + 1, CORE_SLOTS_MAX + 1), &segment, NULL),
        TCK_ERR_INVAL);
    memory_free(memory);
}

Test(memory, keeps_the_segment_it_has_and_refuses_another_size)
{
    struct memory *memory = memory_of("job", CAP_BYTES, NULL);
    struct segment *segment = add(memory, SHARD, SMALL_BYTES), *other;

    cr_assert_eq(add(memory, SHARD, SMALL_BYTES), segment);
    cr_assert_eq(add_segment(memory, wish_of(SHARD, SMALL_BYTES, SLOTS - 1, SLOTS - 1), &other, NULL), TCK_ERR_EXIST);
    memory_free(memory);
}

Test(memory, finds_segments_and_lists_them_by_shard)
{
    struct memory *memory = memory_of("job", CAP_BYTES, NULL);
    struct segment *second = add(memory, OTHER, SMALL_BYTES);
    struct segment *first = add(memory, SHARD, SMALL_BYTES);

    cr_assert_eq(memory_count(memory), 2);
    cr_assert_eq(memory_at(memory, 0), first);
    cr_assert_eq(memory_at(memory, 1), second);
    cr_assert_eq(memory_find(memory, OTHER), second);
    cr_assert_null(memory_find(memory, (struct hash128){7, 3}));
    memory_free(memory);
}

Test(memory, returns_the_bytes_when_a_segment_is_removed)
{
    struct stored stored = {.refuse_from = -1};
    struct memory *memory = memory_of("job", CAP_BYTES, &stored);

    memory_remove(memory, add(memory, SHARD, SMALL_BYTES));
    cr_assert_eq(memory_used_bytes(memory), 0);
    cr_assert_eq(memory_count(memory), 0);
    cr_assert_eq(stored.count, 0);
    memory_free(memory);
}

Test(memory, leaves_nothing_behind_when_parking_fails)
{
    struct stored stored = {.refuse_from = 1};
    struct memory *memory = memory_of("job", CAP_BYTES, &stored);
    struct segment *segment;

    cr_assert_eq(add_segment(memory, wish_of(SHARD, SMALL_BYTES, SLOTS, SLOTS), &segment, NULL), TCK_ERR_UNREACHABLE);
    cr_assert_eq(stored.count, 0);
    cr_assert_eq(memory_used_bytes(memory), 0);
    memory_free(memory);
}

Test(memory, cannot_be_shrunk_or_grown_by_a_process_that_has_the_file)
{
    struct stored stored = {.refuse_from = -1};
    struct memory *memory = memory_of("job", CAP_BYTES, &stored);
    int data_fd = segment_info(add(memory, SHARD, SMALL_BYTES)).data_fd;

    cr_assert_eq(ftruncate(data_fd, 0), -1);
    cr_assert_eq(ftruncate(data_fd, 1 << 30), -1);
    cr_assert_eq(ftruncate(parked_fd(&stored, 'm'), 0), -1);
    memory_free(memory);
    parked_free(&stored);
}

Test(memory, refuses_a_mount_that_does_not_exist)
{
    struct memory *memory;
    struct error err = {0};
    struct memory_setup setup = {.job = "job", .cap_bytes = 1, .hugetlb_mount = "/nonexistent/mount", .threads = 1};

    cr_assert_eq(memory_new(&setup, &memory, &err), TCK_ERR_CONFIG);
    cr_assert_not_null(strstr(err.text, "/nonexistent/mount"), "%s", err.text);
}

/* ---- headers and digests --------------------------------------------------------------------------------------- */

Test(memory, writes_headers_to_the_two_pages_in_turn)
{
    struct stored stored = {.refuse_from = -1};
    struct memory *memory = memory_of("job", CAP_BYTES, &stored);
    struct segment *segment = add(memory, SHARD, SMALL_BYTES);
    uint8_t *meta = map_meta(&stored);

    for (int i = 0; i < 4; i++) {
        uint8_t *before = newest_page(meta);
        uint64_t sequence = segment_header(segment, 0)->sequence;
        segment_write_header(segment, 0, &(struct slot_header){.state = SLOT_FILLING});
        cr_assert_neq(newest_page(meta), before);
        cr_assert_eq(segment_header(segment, 0)->sequence, sequence + 1);
    }
    munmap(meta, 2 * SLOT_HEADER_BYTES);
    memory_free(memory);
    parked_free(&stored);
}

/* The pages are not read while the agent runs, so damage in them would be noticed only after it has died. */
Test(memory, repairs_a_damaged_header_in_place)
{
    struct stored stored = {.refuse_from = -1};
    struct memory *memory = memory_of("job", CAP_BYTES, &stored);
    struct segment *segment = add(memory, SHARD, SMALL_BYTES);
    uint8_t *meta = map_meta(&stored);
    save(segment, 0, (struct version){1, 10});
    cr_assert_not(segment_repair_header(segment, 0));
    for (int at = 0; at < SLOT_HEADER_BYTES; at += 37) {
        newest_page(meta)[at] ^= 4;
        cr_assert(segment_repair_header(segment, 0), "byte %d", at);
        cr_assert_not(segment_repair_header(segment, 0));
    }
    newest_page(meta)[50] ^= 4;
    cr_assert(segment_repair_header(segment, 0));
    munmap(meta, 2 * SLOT_HEADER_BYTES);
    memory_free(memory);

    memory = back_from(&stored, "job");
    segment = memory_find(memory, SHARD);
    cr_assert_not_null(segment);
    cr_assert_eq(segment_header(segment, 0)->state, SLOT_VERIFIED);
    cr_assert(version_is(segment_header(segment, 0)->version, (struct version){1, 10}));
    memory_free(memory);
    parked_free(&stored);
}

static tck_status_t verify(struct segment *segment, uint32_t slot, struct error *err)
{
    tck_status_t status = segment_verify_root(segment, slot, err);
    for (uint32_t i = 0; i < chunk_count(segment_info(segment).image_bytes) && status == TCK_OK; i++) {
        status = segment_verify_chunk(segment, slot, i, err);
    }
    return status;
}

Test(memory, verifies_what_was_saved)
{
    struct memory *memory = memory_of("job", CAP_BYTES, NULL);
    struct segment *segment = add(memory, SHARD, IMAGE_BYTES);
    struct error err = {0};

    save(segment, 1, (struct version){2, 300});
    cr_assert_eq(verify(segment, 1, &err), TCK_OK, "%s", err.text);
    memory_free(memory);
}

Test(memory, names_slot_and_chunk_of_a_flipped_bit)
{
    struct memory *memory = memory_of("job", CAP_BYTES, NULL);
    struct segment *segment = add(memory, SHARD, IMAGE_BYTES);
    struct error err = {0};

    save(segment, 2, (struct version){2, 300});
    segment_image(segment, 2)[CHUNK_BYTES + 17] ^= 1;
    cr_assert_eq(verify(segment, 2, &err), TCK_ERR_CORRUPT);
    cr_assert_not_null(strstr(err.text, "version 2.300: slot 2: chunk 1 of 2"), "%s", err.text);
    memory_free(memory);
}

Test(memory, notices_chunk_crcs_that_are_not_those_of_the_header)
{
    struct memory *memory = memory_of("job", CAP_BYTES, NULL);
    struct segment *segment = add(memory, SHARD, IMAGE_BYTES);
    struct error err = {0};

    save(segment, 0, (struct version){2, 300});
    memset(segment_image(segment, 0), 0, IMAGE_BYTES);
    (void)digest_image(segment_image(segment, 0), IMAGE_BYTES, segment_crcs(segment, 0));
    cr_assert_eq(verify(segment, 0, &err), TCK_ERR_CORRUPT);
    cr_assert_not_null(strstr(err.text, "root"), "%s", err.text);
    memory_free(memory);
}

Test(memory, a_slot_is_unproven_until_it_is_filled_again)
{
    struct memory *memory = memory_of("job", CAP_BYTES, NULL);
    struct segment *segment = add(memory, SHARD, IMAGE_BYTES);

    segment_set_unproven(segment, 1, true);
    segment_write_header(segment, 1, &(struct slot_header){.state = SLOT_VERIFIED});
    cr_assert(segment_is_unproven(segment, 1));
    cr_assert_not(segment_is_unproven(segment, 0));
    segment_write_header(segment, 1, &(struct slot_header){.state = SLOT_RECEIVING});
    cr_assert_not(segment_is_unproven(segment, 1));
    memory_free(memory);
}

Test(memory, does_not_verify_a_slot_without_digests)
{
    struct memory *memory = memory_of("job", CAP_BYTES, NULL);
    struct segment *segment = add(memory, SHARD, SMALL_BYTES);

    cr_assert_eq(verify(segment, 0, NULL), TCK_ERR_INVAL);
    memory_free(memory);
}

/* ---- restart --------------------------------------------------------------------------------------------------- */

Test(memory, is_rebuilt_from_the_parked_files_alone)
{
    struct stored stored = {.refuse_from = -1};
    struct error err = {0};
    struct memory *memory = memory_of("job", CAP_BYTES, &stored);
    save(add(memory, SHARD, IMAGE_BYTES), 1, (struct version){2, 300});
    add(memory, OTHER, SMALL_BYTES);
    uint64_t used = memory_used_bytes(memory);
    memory_free(memory);

    memory = back_from(&stored, "job");
    struct segment *segment = memory_find(memory, SHARD);
    cr_assert_not_null(segment);
    cr_assert_not_null(memory_find(memory, OTHER));
    cr_assert_eq(memory_used_bytes(memory), used);
    cr_assert_eq(segment_header(segment, 1)->state, SLOT_VERIFIED);
    cr_assert(version_is(segment_header(segment, 1)->version, (struct version){2, 300}));
    cr_assert(segment_header(segment, 1)->committed);
    cr_assert_eq(segment_header(segment, 0)->state, SLOT_FREE);
    cr_assert_eq(verify(segment, 1, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(add(memory, SHARD, IMAGE_BYTES), segment);
    cr_assert_eq(stored.count, 4);
    memory_free(memory);
    parked_free(&stored);
}

Test(memory, continues_to_write_headers_after_a_restart)
{
    struct stored stored = {.refuse_from = -1};
    struct memory *memory = memory_of("job", CAP_BYTES, &stored);
    save(add(memory, SHARD, SMALL_BYTES), 0, (struct version){2, 300});
    memory_free(memory);

    memory = back_from(&stored, "job");
    save(memory_find(memory, SHARD), 0, (struct version){2, 400});
    memory_free(memory);

    memory = back_from(&stored, "job");
    cr_assert(version_is(segment_header(memory_find(memory, SHARD), 0)->version, (struct version){2, 400}));
    memory_free(memory);
    parked_free(&stored);
}

/* The seals as a trainer maps them. */
static struct seal *map_seals(const struct stored *stored)
{
    int fd = parked_fd(stored, 'm');
    struct stat st;
    cr_assert_eq(fstat(fd, &st), 0);
    struct seal *seals = mmap(NULL, SEALS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, st.st_size - SEALS_BYTES);
    cr_assert_neq((void *)seals, MAP_FAILED);
    return seals;
}

Test(memory, seals_outlive_the_agent)
{
    const struct version version = {2, 300};
    struct stored stored = {.refuse_from = -1};
    struct memory *memory = memory_of("job", CAP_BYTES, &stored);
    struct segment *segment = add(memory, SHARD, SMALL_BYTES);
    segment_write_header(segment, 1, &(struct slot_header){.state = SLOT_FILLING, .version = version});
    memory_free(memory);
    struct seal *seals = map_seals(&stored);
    seal_set(&seals[1], version, NULL);

    memory = back_from(&stored, "job");
    segment = memory_find(memory, SHARD);
    cr_assert_eq(segment_header(segment, 1)->state, SLOT_FILLING);
    cr_assert(version_is(segment_seal(segment, 1).version, version));
    cr_assert(version_none(segment_seal(segment, 0).version));
    munmap(seals, SEALS_BYTES);
    memory_free(memory);
    parked_free(&stored);
}

Test(memory, removes_the_seal_when_the_slot_is_filled_again)
{
    const struct version version = {2, 300};
    struct stored stored = {.refuse_from = -1};
    struct memory *memory = memory_of("job", CAP_BYTES, &stored);
    struct segment *segment = add(memory, SHARD, SMALL_BYTES);
    struct seal *seals = map_seals(&stored);
    seal_set(&seals[0], version, NULL);
    save(segment, 0, version);
    cr_assert(version_is(segment_seal(segment, 0).version, version));
    segment_write_header(segment, 0, &(struct slot_header){.state = SLOT_FILLING, .version = version});
    cr_assert(version_none(segment_seal(segment, 0).version), "the same version, but not these bytes");
    munmap(seals, SEALS_BYTES);
    memory_free(memory);
    parked_free(&stored);
}

/* A seal would mark the bytes as complete while they are still arriving. */
Test(memory, removes_the_seal_when_the_slot_receives_the_same_version)
{
    const struct version version = {2, 300};
    struct stored stored = {.refuse_from = -1};
    struct memory *memory = memory_of("job", CAP_BYTES, &stored);
    struct segment *segment = add(memory, SHARD, SMALL_BYTES);
    struct seal *seals = map_seals(&stored);
    seal_set(&seals[0], version, NULL);
    save(segment, 0, version);
    segment_write_header(segment, 0, &(struct slot_header){.state = SLOT_FREE});
    segment_write_header(segment, 0, &(struct slot_header){.state = SLOT_RECEIVING, .version = version});
    cr_assert(version_none(segment_seal(segment, 0).version));
    munmap(seals, SEALS_BYTES);
    memory_free(memory);
    parked_free(&stored);
}

Test(memory, uses_the_older_header_page_if_the_newer_one_is_torn)
{
    struct stored stored = {.refuse_from = -1};
    struct memory *memory = memory_of("job", CAP_BYTES, &stored);
    struct segment *segment = add(memory, SHARD, SMALL_BYTES);
    save(segment, 0, (struct version){2, 300});
    save(segment, 0, (struct version){2, 400});
    memory_free(memory);
    uint8_t *meta = map_meta(&stored);
    memset(newest_page(meta) + 100, 0, 8);

    memory = back_from(&stored, "job");
    cr_assert(version_is(segment_header(memory_find(memory, SHARD), 0)->version, (struct version){2, 300}));
    munmap(meta, 2 * SLOT_HEADER_BYTES);
    memory_free(memory);
    parked_free(&stored);
}

Test(memory, frees_a_slot_that_lost_both_header_pages_and_keeps_the_others)
{
    struct stored stored = {.refuse_from = -1};
    struct memory *memory = memory_of("job", CAP_BYTES, &stored);
    struct segment *segment = add(memory, SHARD, SMALL_BYTES);
    save(segment, 0, (struct version){2, 300});
    save(segment, 1, (struct version){2, 400});
    memory_free(memory);
    uint8_t *meta = map_meta(&stored);
    memset(meta, 0, 2 * SLOT_HEADER_BYTES);

    memory = back_from(&stored, "job");
    segment = memory_find(memory, SHARD);
    cr_assert_not_null(segment);
    cr_assert_eq(segment_header(segment, 0)->state, SLOT_FREE);
    cr_assert_eq(segment_header(segment, 1)->state, SLOT_VERIFIED);
    munmap(meta, 2 * SLOT_HEADER_BYTES);
    memory_free(memory);
    parked_free(&stored);
}

Test(memory, drops_and_unparks_a_segment_with_no_whole_header)
{
    struct stored stored = {.refuse_from = -1};
    struct memory *memory = memory_of("job", CAP_BYTES, &stored);
    struct segment *segment;
    struct error err = {0};
    cr_assert_eq(add_segment(memory, wish_of(SHARD, SMALL_BYTES, 1, 1), &segment, &err), TCK_OK, "%s", err.text);
    memory_free(memory);
    uint8_t *meta = map_meta(&stored);
    memset(meta, 0xff, 2 * SLOT_HEADER_BYTES);

    memory = back_from(&stored, "job");
    cr_assert_eq(memory_count(memory), 0);
    cr_assert_eq(stored.count, 0);
    munmap(meta, 2 * SLOT_HEADER_BYTES);
    memory_free(memory);
}

Test(memory, drops_and_unparks_half_a_segment)
{
    struct stored stored = {.refuse_from = -1};
    struct memory *memory = memory_of("job", CAP_BYTES, &stored);
    add(memory, SHARD, SMALL_BYTES);
    memory_free(memory);
    drop_fd(&stored, stored.names[0]);

    memory = back_from(&stored, "job");
    cr_assert_eq(memory_count(memory), 0);
    cr_assert_eq(stored.count, 0);
    memory_free(memory);
}

Test(memory, drops_a_pair_whose_data_file_has_another_size)
{
    struct stored stored = {.refuse_from = -1};
    struct memory *memory = memory_of("job", CAP_BYTES, &stored);
    add(memory, SHARD, SMALL_BYTES);
    memory_free(memory);
    int other_fd = memfd_create("other", MFD_CLOEXEC);
    cr_assert_eq(ftruncate(other_fd, SMALL_BYTES), 0);
    cr_assert_eq(dup2(other_fd, parked_fd(&stored, 'd')), parked_fd(&stored, 'd'));
    close(other_fd);

    memory = back_from(&stored, "job");
    cr_assert_eq(memory_count(memory), 0);
    cr_assert_eq(stored.count, 0);
    memory_free(memory);
}

Test(memory, drops_the_segments_of_another_job)
{
    struct stored stored = {.refuse_from = -1};
    struct memory *memory = memory_of("job", CAP_BYTES, &stored);
    add(memory, SHARD, SMALL_BYTES);
    memory_free(memory);

    memory = back_from(&stored, "other");
    cr_assert_eq(memory_count(memory), 0);
    memory_free(memory);
    parked_free(&stored);
}

Test(memory, unparks_files_that_are_no_segment_at_all)
{
    struct stored stored = {.refuse_from = -1};
    struct memory *memory = memory_of("job", CAP_BYTES, &stored);
    int fd = memfd_create("other", MFD_CLOEXEC);
    cr_assert_eq(store_fd(&stored, "x.0123456789abcdef0123456789abcdef", fd, NULL), TCK_OK);

    memory_adopt(memory, stored.names[0], fd);
    memory_adopted(memory);
    cr_assert_eq(stored.count, 0);
    memory_free(memory);
}

/* ---- giving slots back ----------------------------------------------------------------------------------------- */

static uint64_t allocated_bytes(const struct segment *segment)
{
    struct stat st;
    cr_assert_eq(fstat(segment_info(segment).data_fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static struct seal *seals_of(const struct segment *segment)
{
    struct stat st;
    int fd = segment_info(segment).meta_fd;
    cr_assert_eq(fstat(fd, &st), 0);
    return mmap(NULL, SEALS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, st.st_size - SEALS_BYTES);
}

Test(memory, gives_the_pages_of_one_slot_back_and_takes_them_again)
{
    struct error err;
    struct memory *memory = memory_of("job", CAP_BYTES, NULL);
    struct segment *segment = add(memory, SHARD, IMAGE_BYTES);
    uint64_t whole = allocated_bytes(segment), stride = segment_info(segment).slot_stride;
    save(segment, 0, (struct version){1, 5});
    cr_assert_eq(segment_give_back(segment, 1, false, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(allocated_bytes(segment), whole - stride);
    cr_assert_not(segment_has_pages(segment, 1));
    cr_assert(segment_has_pages(segment, 0));
    cr_assert_eq(segment_verify_root(segment, 0, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(segment_verify_chunk(segment, 0, 1, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(segment_take_back(segment, 1, 2, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(allocated_bytes(segment), whole);
    save(segment, 1, (struct version){1, 6});
    cr_assert_eq(segment_verify_chunk(segment, 1, 0, &err), TCK_OK, "%s", err.text);
    memory_free(memory);
}

Test(memory, a_restarted_agent_finds_which_slots_were_given_back)
{
    struct error err;
    struct stored stored = {.refuse_from = -1};
    struct memory *memory = memory_of("job", CAP_BYTES, &stored);
    struct segment *segment = add(memory, SHARD, IMAGE_BYTES);
    save(segment, 0, (struct version){1, 5});
    cr_assert_eq(segment_give_back(segment, 2, false, &err), TCK_OK, "%s", err.text);
    memory_free(memory);
    memory = back_from(&stored, "job");
    segment = memory_find(memory, SHARD);
    cr_assert_not(segment_is_given_back(segment, 0));
    cr_assert_not(segment_is_given_back(segment, 1));
    cr_assert(segment_is_given_back(segment, 2));
    memory_free(memory);
    parked_free(&stored);
}

Test(memory, a_slot_that_was_given_back_after_a_restart_in_the_middle_of_a_copy_is_found_as_well)
{
    struct error err;
    struct stored stored = {.refuse_from = -1};
    struct memory *memory = memory_of("job", CAP_BYTES, &stored);
    struct segment *segment = add(memory, SHARD, IMAGE_BYTES);
    segment_write_header(segment, 1, &(struct slot_header){.state = SLOT_RECEIVING, .version = {1, 5}});
    memory_free(memory);
    memory = back_from(&stored, "job");
    segment = memory_find(memory, SHARD);
    cr_assert_not(segment_is_given_back(segment, 1));
    cr_assert_eq(segment_give_back(segment, 1, false, &err), TCK_OK, "%s", err.text);
    memory_free(memory);
    memory = back_from(&stored, "job");
    cr_assert(segment_is_given_back(memory_find(memory, SHARD), 1));
    memory_free(memory);
    parked_free(&stored);
}

/* In place of the C library's: where threads wanted to run. */
static _Atomic int bound_threads, bound_elsewhere;
static pid_t test_thread;

int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *cpus)
{
    bound_threads++;
    bound_elsewhere +=
        pid != 0 || size != sizeof(struct cpus) || CPU_COUNT_S(size, cpus) != 1 || gettid() == test_thread;
    return 0;
}

static int threads_bound(void)
{
    int count = bound_threads;
    cr_assert_eq(bound_elsewhere, 0);
    bound_threads = 0;
    return count;
}

Test(memory, pages_are_touched_beside_the_processors_that_will_fill_them)
{
    struct error err = {0};
    struct segment *segment;
    struct memory *memory = memory_of("job", CAP_BYTES, NULL);
    struct segment_wish wish = wish_of(SHARD, IMAGE_BYTES, SLOTS, SLOTS - 1);
    test_thread = gettid();
    cr_assert_eq(add_segment(memory, wish_of(OTHER, IMAGE_BYTES, 1, 1), &segment, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(threads_bound(), 0);
    CPU_SET_S(1, sizeof(wish.near), wish.near.sets);
    cr_assert_eq(add_segment(memory, wish, &segment, &err), TCK_OK, "%s", err.text);
    cr_assert_geq(threads_bound(), 1);
    cr_assert_eq(segment_give_back(segment, 1, false, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(segment_take_back(segment, 1, 2, &err), TCK_OK, "%s", err.text);
    cr_assert_geq(threads_bound(), 1, "a slot that comes back");
    wish.used = SLOTS;
    cr_assert_eq(add_segment(memory, wish, &segment, &err), TCK_OK, "%s", err.text);
    cr_assert_geq(threads_bound(), 1, "a slot that was not used before");
    memory_free(memory);
}

static struct segment *add_used(struct memory *memory, uint32_t used)
{
    struct segment *segment;
    struct error err = {0};
    cr_assert_eq(add_segment(memory, wish_of(SHARD, IMAGE_BYTES, SLOTS, used), &segment, &err), TCK_OK, "%s", err.text);
    return segment;
}

Test(memory, allocates_only_the_slots_that_are_used)
{
    struct memory *memory = memory_of("job", CAP_BYTES, NULL);
    uint64_t needed = needed_bytes(memory, wish_of(SHARD, IMAGE_BYTES, SLOTS, 2));
    struct segment *segment = add_used(memory, 2);
    uint64_t stride = segment_info(segment).slot_stride;
    cr_assert_eq(segment_info(segment).slot_count, SLOTS);
    cr_assert_eq(allocated_bytes(segment), 2 * stride);
    cr_assert_not(segment_is_given_back(segment, 1));
    cr_assert(segment_is_given_back(segment, 2));
    cr_assert_eq(segment_lacking(segment), 0, "it is not needed");
    cr_assert_eq(memory_used_bytes(memory), needed);
    cr_assert_eq(needed_bytes(memory, wish_of(OTHER, IMAGE_BYTES, SLOTS, SLOTS)), needed + stride);
    memory_free(memory);
}

Test(memory, allocates_what_is_needed_when_this_node_becomes_an_owner)
{
    struct memory *memory = memory_of("job", CAP_BYTES, NULL);
    struct segment *segment = add_used(memory, 2);
    uint64_t used = memory_used_bytes(memory), stride = segment_info(segment).slot_stride;
    save(segment, 1, (struct version){1, 5});
    cr_assert_eq(add_used(memory, SLOTS), segment);
    cr_assert_eq(allocated_bytes(segment), SLOTS * stride);
    cr_assert_not(segment_is_given_back(segment, 2));
    cr_assert_eq(memory_used_bytes(memory), used + stride);
    cr_assert_eq(segment_verify_root(segment, 1, NULL), TCK_OK);
    memory_free(memory);
}

Test(memory, what_an_agent_finds_without_pages_is_not_allocated_when_it_registers)
{
    struct error err;
    struct stored stored = {.refuse_from = -1};
    struct memory *memory = memory_of("job", CAP_BYTES, &stored);
    struct segment *segment = add(memory, SHARD, IMAGE_BYTES);
    uint64_t used = memory_used_bytes(memory), stride = segment_info(segment).slot_stride;
    cr_assert_eq(segment_give_back(segment, 2, false, &err), TCK_OK, "%s", err.text);
    memory_free(memory);
    memory = back_from(&stored, "job");
    segment = memory_find(memory, SHARD);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(add(memory, SHARD, IMAGE_BYTES), segment);
        cr_assert_eq(allocated_bytes(segment), (SLOTS - 1) * stride);
        cr_assert(segment_is_given_back(segment, 2));
        cr_assert_eq(segment_lacking(segment), 1);
        cr_assert_eq(memory_used_bytes(memory), used, "it will be used again");
    }
    memory_free(memory);
    parked_free(&stored);
}

Test(memory, gives_a_free_slot_back_when_this_node_only_holds_the_shard)
{
    struct memory *memory = memory_of("job", CAP_BYTES, NULL);
    struct segment *segment = add(memory, SHARD, IMAGE_BYTES);
    uint64_t used = memory_used_bytes(memory), stride = segment_info(segment).slot_stride;
    save(segment, 2, (struct version){1, 5});
    segment_set_used(segment, 2);
    cr_assert(segment_is_given_back(segment, 1), "the last one that is free");
    cr_assert_not(segment_is_given_back(segment, 0));
    cr_assert_eq(allocated_bytes(segment), 2 * stride);
    cr_assert_eq(memory_used_bytes(memory), used - stride);
    cr_assert_eq(segment_verify_root(segment, 2, NULL), TCK_OK);
    memory_free(memory);
}

Test(memory, what_is_in_use_or_pinned_keeps_its_pages_and_counts)
{
    struct memory *memory = memory_of("job", CAP_BYTES, NULL);
    struct segment *segment = add(memory, SHARD, IMAGE_BYTES);
    uint64_t used = memory_used_bytes(memory);
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        save(segment, slot, (struct version){1, slot + 1});
    }
    segment_set_used(segment, 2);
    cr_assert_eq(memory_used_bytes(memory), used);
    segment_write_header(segment, 0, &(struct slot_header){.state = SLOT_FREE});
    struct seal *seals = seals_of(segment);
    seals_set_pins(seals, PINS_MADE);
    segment_set_used(segment, 2);
    cr_assert_eq(memory_used_bytes(memory), used);
    seals_set_pins(seals, PINS_NONE);
    segment_set_used(segment, 2);
    cr_assert_eq(memory_used_bytes(memory), used - segment_info(segment).slot_stride);
    munmap(seals, SEALS_BYTES);
    memory_free(memory);
}

Test(memory, the_cap_also_holds_for_slots_that_are_needed_again)
{
    struct error err = {0};
    struct segment *segment;
    uint64_t cap = (2 * ((uint64_t)4 << 20)) + ((uint64_t)4 << 20);
    struct memory *memory = memory_of("job", cap, NULL);
    cr_assert_eq(add_segment(memory, wish_of(SHARD, (uint64_t)4 << 20, SLOTS, 2), &segment, &err), TCK_OK, "%s",
                 err.text);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(add_segment(memory, wish_of(SHARD, (uint64_t)4 << 20, SLOTS, SLOTS), &segment, &err),
                     TCK_ERR_NOSPC);
        cr_assert(strstr(err.text, "memory_cap_bytes") != NULL, "%s", err.text);
    }
    cr_assert_eq(segment_lacking(memory_find(memory, SHARD)), 0, "what was refused is not needed");
    memory_free(memory);
}

Test(memory, what_is_short_for_lack_of_memory_is_not_taken_back_at_a_registration)
{
    struct error err = {0};
    struct memory *memory = memory_of("job", CAP_BYTES, NULL);
    struct segment *segment = add(memory, SHARD, IMAGE_BYTES);
    uint64_t used = memory_used_bytes(memory);
    segment_set_given_back(segment, 2, true);
    cr_assert_eq(segment_give_back(segment, 2, false, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(segment_lacking(segment), 1);
    cr_assert_eq(memory_used_bytes(memory), used, "it will be used again");
    cr_assert_eq(add(memory, SHARD, IMAGE_BYTES), segment);
    cr_assert_eq(segment_lacking(segment), 1);
    memory_free(memory);
}

Test(memory, pages_that_a_trainer_may_have_pinned_are_not_given_back)
{
    struct error err;
    struct memory *memory = memory_of("job", CAP_BYTES, NULL);
    struct segment *segment = add(memory, SHARD, IMAGE_BYTES);
    struct seal *seals = seals_of(segment);
    cr_assert_not(segment_can_give_back(segment, true), "its trainer has not said anything yet");
    cr_assert(segment_can_give_back(segment, false), "no trainer writes into it");
    seals_set_pins(seals, PINS_MADE);
    cr_assert_not(segment_can_give_back(segment, true));
    cr_assert_not(segment_can_give_back(segment, false));
    seals_set_pins(seals, PINS_NONE);
    cr_assert(segment_can_give_back(segment, true));
    segment_announce(segment);
    cr_assert_not(segment_can_give_back(segment, true), "a new trainer has not said anything yet");
    cr_assert_eq(segment_give_back(segment, 1, true, &err), TCK_ERR_BUSY);
    cr_assert(segment_has_pages(segment, 1));
    seals_set_pins(seals, PINS_MADE);
    segment_announce(segment);
    cr_assert_not(segment_can_give_back(segment, false), "what is pinned stays so");
    munmap(seals, SEALS_BYTES);
    memory_free(memory);
}
