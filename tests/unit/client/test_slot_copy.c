/* SPDX-License-Identifier: Apache-2.0
 * The copy engine: every kernel copies exactly, lists cover every byte once, threads share the work, guards stop it. */
#include "base/digest.h"
#include "client/memcpy_nt.h"
#include "client/slot_copy.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIG (20u << 20)

static uint8_t pattern(uint64_t i)
{
    return (uint8_t)(i * 131 + i / 251);
}

/* Copies exactly `bytes` from a source to a destination of any alignment, and nothing around them. */
static void check_kernel(const struct memcpy_nt *kernel, size_t bytes, size_t to, size_t from)
{
    static uint8_t src[(1 << 20) + 1000], dst[(1 << 20) + 1000];
    memset(dst, 0xaa, sizeof(dst));
    for (size_t i = 0; i < bytes; i++) {
        src[from + i] = pattern(i);
    }
    kernel->copy(dst + to, src + from, bytes);
    memcpy_nt_fence();
    for (size_t i = 0; i < to; i++) {
        cr_assert_eq(dst[i], 0xaa, "%s wrote before the destination", kernel->name);
    }
    cr_assert_arr_eq(dst + to, src + from, bytes, "%s: %zu bytes, %zu from %zu", kernel->name, bytes, to, from);
    cr_assert_eq(dst[to + bytes], 0xaa, "%s wrote behind the destination", kernel->name);
}

Test(copy, kernels_copy_any_size_at_any_alignment)
{
    static const size_t sizes[] = {0,
                                   1,
                                   63,
                                   64,
                                   65,
                                   127,
                                   128,
                                   4095,
                                   4096,
                                   65536 + 17,
                                   (256 << 10) - 1,
                                   (256 << 10) + 63,
                                   1 << 20,
                                   (1 << 20) + 191};
    struct memcpy_nt kernels[KERNELS_MAX];
    unsigned count = memcpy_nt_list(kernels);
    cr_assert_geq(count, 1);
    for (unsigned k = 0; k < count; k++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            for (size_t shift = 0; shift < 70; shift += 23) {
                check_kernel(&kernels[k], sizes[s], 64 + shift, (shift * 7) % 64);
            }
        }
    }
}

struct fixture {
    struct layout layout;
    struct copy_list list;
    struct copier *copier;
    uint8_t *src[4], *image, *addrs[4];
    uint64_t bytes[4];
};

static struct fixture make_with(struct copy_threads threads)
{
    struct fixture f = {.bytes = {5, BIG + 3, 100000, 0}};
    struct error err;
    char key[8];
    for (int i = 0; i < 4; i++) {
        f.src[i] = f.addrs[i] = malloc(f.bytes[i] + 1);
        for (uint64_t b = 0; b < f.bytes[i]; b++) {
            f.src[i][b] = pattern(b + (uint64_t)i);
        }
        snprintf(key, sizeof(key), "t%d", i);
        tck_record_t record = {.struct_size = sizeof(record),
                               .key = key,
                               .dtype = TCK_U8,
                               .ndim = 1,
                               .global_shape = {f.bytes[i]},
                               .local_shape = {f.bytes[i]},
                               .addr = f.src[i]};
        cr_assert_eq(layout_add(&f.layout, &record, NULL, &err), TCK_OK, "%s", err.text);
    }
    cr_assert_eq(layout_build(&f.layout, 0, 1, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(copy_list_build(&f.layout, &f.layout.shards[0], f.addrs, &f.list, &err), TCK_OK);
    cr_assert_eq(copier_new(threads, &f.copier, &err), TCK_OK, "%s", err.text);
    f.image = aligned_alloc(4096, f.layout.shards[0].image_bytes);
    return f;
}

static struct fixture make(uint32_t threads)
{
    return make_with((struct copy_threads){.save = threads, .restore = threads});
}

static void release(struct fixture *f)
{
    copier_free(f->copier);
    copy_list_free(&f->list);
    layout_free(&f->layout);
    free(f->image);
    for (int i = 0; i < 4; i++) {
        free(f->src[i]);
    }
}

static void check_image(const struct fixture *f)
{
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(memcmp(f->image + f->layout.records[i].image_offset, f->addrs[i], f->bytes[i]), 0, "record %d", i);
    }
}

Test(copy, list_covers_every_byte_once_in_image_order)
{
    struct fixture f = make(1);
    uint64_t bytes = 0, last_end = 0;
    uint32_t pieces = 0;
    for (uint32_t i = 0; i < f.list.piece_count; i++) {
        cr_assert_geq(f.list.pieces[i].offset, last_end);
        cr_assert_leq(f.list.pieces[i].bytes, COPY_BATCH_BYTES);
        last_end = f.list.pieces[i].offset + f.list.pieces[i].bytes;
        bytes += f.list.pieces[i].bytes;
    }
    for (uint32_t i = 0; i < f.list.batch_count; i++) {
        cr_assert_eq(f.list.batches[i].first, pieces);
        pieces += f.list.batches[i].count;
    }
    cr_assert_eq(pieces, f.list.piece_count);
    cr_assert_eq(bytes, f.list.bytes);
    cr_assert_eq(bytes, f.bytes[0] + f.bytes[1] + f.bytes[2]);
    release(&f);
}

static void copies_with(struct copy_threads threads)
{
    struct fixture f = make_with(threads);
    for (int round = 0; round < 10; round++) { /* through all kernels */
        memset(f.image, 0, f.layout.shards[0].image_bytes);
        copy_to_slot(f.copier, &f.list, f.image);
        check_image(&f);
    }
    for (int i = 0; i < 4; i++) {
        memset(f.src[i], 0, f.bytes[i]);
    }
    copy_from_slot(f.copier, &f.list, f.image);
    check_image(&f);
    cr_assert_eq(f.src[1][1000], pattern(1001));
    release(&f);
}

Test(copy, one_thread_copies_everything_there_and_back)
{
    copies_with((struct copy_threads){1, 1});
}

Test(copy, threads_digest_an_image_as_one_would)
{
    const uint64_t sizes[] = {1, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * (uint64_t)CHUNK_BYTES + 4097};
    uint8_t *image = malloc(sizes[3]);
    uint32_t crcs[6];
    struct error err;
    for (uint64_t i = 0; i < sizes[3]; i++) {
        image[i] = (uint8_t)(i * 2654435761u >> 13);
    }
    for (uint32_t threads = 1; threads <= 4; threads += 3) {
        struct fixture f = make(threads);
        for (uint32_t i = 0; i < 4; i++) {
            struct hash128 root;
            cr_assert_eq(copy_digest(f.copier, image, sizes[i], &root, &err), TCK_OK);
            cr_assert(hash128_is(root, digest_image(image, sizes[i], crcs)), "%u threads, size %u", threads, i);
        }
        release(&f);
    }
    free(image);
}

/* ---- checked while it is copied ---- */

#define PIECES_MAX 4000

/* An image of any size, and pieces of it at odd places: long and short ones, some side by side, some with a gap. */
struct patchwork {
    uint64_t bytes;
    uint8_t *image, *memory; /* memory: where the pieces go, shifted by one, with a byte between them */
    struct copy_list list;
    uint32_t *crcs;
};

static struct patchwork make_patchwork(uint64_t bytes)
{
    struct patchwork p = {.bytes = bytes,
                          .image = malloc(bytes),
                          .memory = malloc(bytes + PIECES_MAX + 2),
                          .list = {.pieces = calloc(PIECES_MAX, sizeof(struct piece))},
                          .crcs = calloc(chunk_count(bytes), sizeof(uint32_t))};
    uint64_t at = bytes > 100 ? 77 : 0;
    for (uint64_t i = 0; i < bytes; i++) {
        p.image[i] = (uint8_t)(i * 2654435761u >> 13);
    }
    memset(p.memory, 0xaa, bytes + PIECES_MAX + 2);
    for (uint32_t n = 0; at < bytes && n < PIECES_MAX; n++) {
        uint64_t wanted = n % 5 == 0 ? 1 + n : n % 5 == 1 ? 70001 : 4096, left = bytes - at;
        struct piece *piece = &p.list.pieces[p.list.piece_count++];
        *piece = (struct piece){.offset = at, .addr = p.memory + 1 + at + n, .bytes = wanted < left ? wanted : left};
        at += piece->bytes + (n % 3 == 0 ? 13 : 0);
    }
    (void)digest_image(p.image, bytes, p.crcs);
    return p;
}

static void free_patchwork(struct patchwork *p)
{
    copy_list_free(&p->list);
    free(p->image);
    free(p->memory);
    free(p->crcs);
}

/* Every byte of each piece, and none beside them. */
static void check_patchwork(const struct patchwork *p)
{
    const uint8_t *next = p->memory;
    for (uint32_t i = 0; i < p->list.piece_count; i++) {
        const struct piece *piece = &p->list.pieces[i];
        for (; next < piece->addr; next++) {
            cr_assert_eq(*next, 0xaa, "written before piece %u of an image of %lu bytes", i, (unsigned long)p->bytes);
        }
        cr_assert_arr_eq(piece->addr, p->image + piece->offset, piece->bytes, "piece %u of %lu bytes", i,
                         (unsigned long)p->bytes);
        next += piece->bytes;
    }
    cr_assert_eq(*next, 0xaa);
}

static struct copier *make_copier(uint32_t threads)
{
    struct copier *copier;
    struct error err;
    cr_assert_eq(copier_new((struct copy_threads){threads, threads}, &copier, &err), TCK_OK, "%s", err.text);
    return copier;
}

Test(copy, an_image_is_checked_and_copied_at_once_whatever_its_size)
{
    static const uint64_t sizes[] = {1,
                                     63,
                                     1023,
                                     1024,
                                     1025,
                                     5119,
                                     5120,
                                     CHUNK_BYTES - 1,
                                     CHUNK_BYTES,
                                     CHUNK_BYTES + 1,
                                     2 * (uint64_t)CHUNK_BYTES + 8192,
                                     5 * (uint64_t)CHUNK_BYTES + 4097};
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        struct copier *copier = make_copier(threads);
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            struct patchwork p = make_patchwork(sizes[s]);
            struct error err;
            cr_assert_eq(copy_from_slot_checked(copier, &p.list, p.image, p.bytes, p.crcs, &err), TCK_OK, "%s",
                         err.text);
            check_patchwork(&p);
            free_patchwork(&p);
        }
        copier_free(copier);
    }
}

Test(copy, a_bit_that_has_changed_anywhere_is_found_while_it_is_copied)
{
    const uint64_t bytes = 5 * (uint64_t)CHUNK_BYTES + 4097;
    const uint64_t places[] = {0,           76 /* before any piece */,      77,       CHUNK_BYTES - 1,
                               CHUNK_BYTES, 2 * (uint64_t)CHUNK_BYTES + 99, bytes - 1};
    struct patchwork p = make_patchwork(bytes);
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        struct copier *copier = make_copier(threads);
        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
            char named[32];
            struct error err;
            p.image[places[i]] ^= 0x10;
            cr_assert_eq(copy_from_slot_checked(copier, &p.list, p.image, bytes, p.crcs, &err), TCK_ERR_CORRUPT,
                         "byte %lu", (unsigned long)places[i]);
            snprintf(named, sizeof(named), "chunk %u of 6", (unsigned)(places[i] / CHUNK_BYTES));
            cr_assert_not_null(strstr(err.text, named), "%s", err.text);
            p.image[places[i]] ^= 0x10;
        }
        copier_free(copier);
    }
    free_patchwork(&p);
}

Test(copy, an_image_without_records_in_host_memory_is_checked_too)
{
    struct patchwork p = make_patchwork(CHUNK_BYTES + 5);
    const struct copy_list none = {0};
    struct copier *copier = make_copier(2);
    struct error err;
    cr_assert_eq(copy_from_slot_checked(copier, &none, p.image, p.bytes, p.crcs, &err), TCK_OK);
    p.image[CHUNK_BYTES] ^= 1;
    cr_assert_eq(copy_from_slot_checked(copier, &none, p.image, p.bytes, p.crcs, &err), TCK_ERR_CORRUPT);
    copier_free(copier);
    free_patchwork(&p);
}

Test(copy, three_threads_copy_everything_there_and_back)
{
    copies_with((struct copy_threads){3, 3});
}

Test(copy, more_threads_restore_than_save)
{
    copies_with((struct copy_threads){.save = 2, .restore = 4});
}

/* Records which threads save while the test watches them, or makes two of them copy at the same time. */
void __real_host_copy_to_slot(struct host_copy *host, const struct piece *pieces, uint32_t count, uint8_t *image);
void __wrap_host_copy_to_slot(struct host_copy *host, const struct piece *pieces, uint32_t count, uint8_t *image);

static pthread_t saver;
static atomic_bool watched, others_saved;
static atomic_int to_meet; /* so many calls wait for each other */
static pthread_barrier_t meeting;

void __wrap_host_copy_to_slot(struct host_copy *host, const struct piece *pieces, uint32_t count, uint8_t *image)
{
    if (atomic_fetch_sub(&to_meet, 1) > 0) {
        pthread_barrier_wait(&meeting);
    }
    if (!watched) {
        __real_host_copy_to_slot(host, pieces, count, image);
    } else if (!pthread_equal(saver, pthread_self())) {
        atomic_store(&others_saved, true);
    }
}

Test(copy, threads_for_restores_keep_out_of_saves)
{
    struct copy_threads threads = {.save = 1, .restore = 4};
    struct fixture f = make(1);
    struct copier *copier;
    struct error err;
    cr_assert_eq(copier_new(threads, &copier, &err), TCK_OK, "%s", err.text);
    saver = pthread_self();
    watched = true;
    for (int round = 0; round < 100; round++) {
        copy_from_slot(copier, &f.list, f.image);
        copy_to_slot(copier, &f.list, f.image);
    }
    copier_free(copier);
    cr_assert_not(others_saved);
    release(&f);
}

static void *help_until_over(void *copier)
{
    copier_help(copier, COPYING_OVER);
    return NULL;
}

Test(copy, a_thread_that_waits_for_a_snapshot_takes_part_in_its_copies, .timeout = 200)
{
    struct fixture f = make(1);
    pthread_t waiting;
    copier_help(f.copier, COPYING_OVER); /* there is no snapshot: returns at once */
    for (int round = 0; round < 3; round++) {
        copier_note(f.copier, COPYING_BEGUN);
        cr_assert_eq(pthread_create(&waiting, NULL, help_until_over, f.copier), 0);
        copier_note(f.copier, COPYING_EAGER_OVER);
        memset(f.image, 0, f.layout.shards[0].image_bytes);
        pthread_barrier_init(&meeting, NULL, 2);
        to_meet = 2;
        copy_to_slot(f.copier, &f.list, f.image); /* hangs if only one thread copies */
        check_image(&f);
        copier_note(f.copier, COPYING_OVER);
        pthread_join(waiting, NULL);
        pthread_barrier_destroy(&meeting);
    }
    release(&f);
}

Test(copy, a_record_without_an_address_is_left_out_of_a_list)
{
    struct fixture f = make(1);
    struct copy_list list;
    struct error err;
    f.addrs[1] = NULL;
    cr_assert_eq(copy_list_build(&f.layout, &f.layout.shards[0], f.addrs, &list, &err), TCK_OK);
    cr_assert_eq(list.bytes, f.bytes[0] + f.bytes[2]);
    memset(f.image, 0xaa, f.layout.shards[0].image_bytes);
    copy_to_slot(f.copier, &list, f.image);
    for (uint64_t i = 0; i < f.bytes[1]; i++) {
        cr_assert_eq(f.image[f.layout.records[1].image_offset + i], 0xaa);
    }
    copy_list_free(&list);
    release(&f);
}

Test(copy, moved_record_is_read_from_its_new_place)
{
    struct fixture f = make(1);
    uint8_t *moved = malloc(f.bytes[1]);
    for (uint64_t b = 0; b < f.bytes[1]; b++) {
        moved[b] = (uint8_t)~f.src[1][b];
    }
    copy_list_move(&f.list, &f.layout.records[1], moved);
    f.addrs[1] = moved;
    copy_to_slot(f.copier, &f.list, f.image);
    check_image(&f);
    free(moved);
    release(&f);
}
