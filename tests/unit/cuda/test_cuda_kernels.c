/* SPDX-License-Identifier: Apache-2.0
 * Compares the kernels' bodies, lane by lane, with memcpy and the host's digests. The code that nvcc generates from
 * them needs a device. */
#include "kernels_on_host.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 64

/* Bytes without a period. Caller frees. */
static uint8_t *new_bytes(size_t len)
{
    uint8_t *bytes = malloc(len + 1);
    uint32_t x = 2463534242u;

    cr_assert_not_null(bytes);
    for (size_t i = 0; i < len; i++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        bytes[i] = (uint8_t)x;
    }
    return bytes;
}

/* Runs all lanes on memory that ends where the piece ends, so that a sanitizer finds any access outside it. */
static void check_copy(const uint8_t *src, size_t bytes, unsigned to_skew, unsigned from_skew)
{
    uint8_t *from = malloc(from_skew + bytes), *to = malloc(to_skew + bytes + GUARD); /* multiples of 16 */

    memset(to, 0xA5, to_skew + bytes + GUARD);
    memcpy(from + from_skew, src, bytes);
    on_host_copy(to + to_skew, from + from_skew, bytes);
    cr_assert_eq(memcmp(to + to_skew, src, bytes), 0, "%zu bytes from +%u to +%u", bytes, from_skew, to_skew);
    for (unsigned i = 0; i < to_skew; i++) {
        cr_assert_eq(to[i], 0xA5, "%zu bytes from +%u to +%u: before", bytes, from_skew, to_skew);
    }
    for (unsigned i = 0; i < GUARD; i++) {
        cr_assert_eq(to[to_skew + bytes + i], 0xA5, "%zu bytes from +%u to +%u: behind", bytes, from_skew, to_skew);
    }
    free(from);
    free(to);
}

Test(cuda_kernels, the_lanes_copy_any_length_from_any_address_to_any_other)
{
    uint8_t *src = new_bytes(4096);
    static const size_t longer[] = {255, 511, 512, 513, 1023, 2047, 2048, 2049, 2063, 2064, 4095, 4096};

    for (unsigned to = 0; to < 16; to++) {
        for (unsigned from = 0; from < 16; from++) {
            for (size_t bytes = 0; bytes < 70; bytes++) {
                check_copy(src, bytes, to, from);
            }
            for (size_t i = 0; i < sizeof(longer) / sizeof(longer[0]); i++) {
                check_copy(src, longer[i], to, from);
            }
        }
    }
    free(src);
}

Test(cuda_kernels, no_byte_is_written_by_two_lanes)
{
    static const size_t sizes[] = {1, 15, 16, 17, 511, 512, 2048, 2051, 5000};
    uint8_t to[5000 + 16] __attribute__((aligned(16))), from[5000 + 16] __attribute__((aligned(16)));

    memset(from, 1, sizeof(from));
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (unsigned skews = 0; skews < 256; skews++) {
            size_t written = 0;

            for (uint32_t dev = 0; dev < COPY_LANES; dev++) {
                memset(to, 0, sizeof(to));
                copy_core_lane(to + skews % 16, from + skews / 16, sizes[s], dev);
                for (size_t i = 0; i < sizeof(to); i++) {
                    written += to[i];
                }
            }
            cr_assert_eq(written, sizes[s], "%zu bytes, skews %u", sizes[s], skews);
        }
    }
}

/* Pieces of all lengths up to count, packed one after the other, with one byte between each two. */
static uint64_t odd_pieces(struct gather_piece *pieces, uint32_t count, const uint8_t *memory)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < count; i++) {
        pieces[i] = (struct gather_piece){(uintptr_t)memory + at + i % 7, at, i};
        at += i + 1;
    }
    return at;
}

Test(cuda_kernels, gathered_and_scattered_bytes_are_unchanged)
{
    enum { COUNT = 600 };
    struct gather_piece pieces[COUNT];
    size_t room = COUNT * (COUNT + 1) / 2 + 16;
    uint8_t *memory = new_bytes(room), *packed = calloc(1, room), *as_memcpy = calloc(1, room), *back = malloc(room);
    uint64_t bytes = odd_pieces(pieces, COUNT, memory);

    on_host_gather(pieces, COUNT, packed);
    for (uint32_t i = 0; i < COUNT; i++) {
        memcpy(as_memcpy + pieces[i].offset, (const void *)(uintptr_t)pieces[i].addr, pieces[i].bytes);
    }
    cr_assert_eq(memcmp(packed, as_memcpy, room), 0);
    cr_assert_eq(bytes, room - 16);

    /* There, what they had overlapped in is written apart. */
    for (uint32_t i = 0; i < COUNT; i++) {
        pieces[i].addr = (uintptr_t)back + pieces[i].offset;
    }
    memset(back, 0, room);
    on_host_scatter(pieces, COUNT, packed);
    cr_assert_eq(memcmp(back, as_memcpy, room), 0);
    free(memory), free(packed), free(as_memcpy), free(back);
}

Test(cuda_kernels, the_chunks_of_an_image_have_the_hosts_digests)
{
    static const uint64_t sizes[] = {1,
                                     2,
                                     15,
                                     16,
                                     17,
                                     4095,
                                     4096,
                                     4097,
                                     8191,
                                     65536 + 13,
                                     CHUNK_BYTES,
                                     CHUNK_BYTES + 1,
                                     CHUNK_BYTES - 1,
                                     2 * CHUNK_BYTES + 4096};
    uint8_t *image = new_bytes(2 * CHUNK_BYTES + 4096 + 16);
    uint32_t on_device[3], on_host[3];

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (unsigned skew = 0; skew < 16; skew += 5) {
            on_host_digest(image + skew, sizes[s], on_device);
            digest_image(image + skew, sizes[s], on_host);
            cr_assert_eq(memcmp(on_device, on_host, chunk_count(sizes[s]) * sizeof(uint32_t)), 0, "%lu bytes at +%u",
                         (unsigned long)sizes[s], skew);
        }
    }
    on_host_digest(image, 0, on_device); /* no chunk, nothing written */
    free(image);
}

Test(cuda_kernels, every_odd_length_has_the_hosts_digest)
{
    uint8_t *image = new_bytes(9000);
    uint32_t crc;

    for (uint64_t bytes = 1; bytes < 9000; bytes += bytes < 300 ? 1 : 97) {
        uint8_t *alone = malloc(bytes);

        memcpy(alone, image, bytes);
        on_host_digest(alone, bytes, &crc);
        cr_assert_eq(crc, crc32c(0, image, bytes), "%lu bytes", (unsigned long)bytes);
        free(alone);
    }
    free(image);
}

/* An image like that of a shard: bytes that the host wrote, tensors of odd lengths, and zeros between them. */
Test(cuda_kernels, contributions_of_pieces_make_the_digest_of_the_whole)
{
    enum { COUNT = 40 };
    uint64_t image_bytes = 2 * (uint64_t)CHUNK_BYTES + 12288, at = 4096;
    uint8_t *image = calloc(1, image_bytes), *tensors = new_bytes(8u << 20);
    struct gather_piece pieces[2 * COUNT + 1];
    uint32_t sums[3] = {0}, crcs[3], count = 0;

    memcpy(image, "{\"a header\": 1}", 15);
    pieces[count++] = (struct gather_piece){(uintptr_t)image, 0, 4096};
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t bytes = 200003 + i * 17, first = CHUNK_BYTES - at % CHUNK_BYTES;
        uint64_t addr = (uintptr_t)tensors + (uint64_t)i * 150001;

        memcpy(image + at, (const void *)(uintptr_t)addr, bytes);
        first = first < bytes ? first : bytes; /* none crosses the end of a chunk */
        pieces[count++] = (struct gather_piece){addr, at, first};
        if (first < bytes) {
            pieces[count++] = (struct gather_piece){addr + first, at + first, bytes - first};
        }
        at = (at + bytes + 63) / 64 * 64;
    }
    cr_assert_lt(at, image_bytes);
    on_host_digest_pieces(pieces, count, image_bytes, sums);
    digest_image(image, image_bytes, crcs);
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_eq(digest_core_finish(sums[i], chunk_size(image_bytes, i)), crcs[i], "chunk %u", i);
    }
    free(image), free(tensors);
}
