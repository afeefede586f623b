/* SPDX-License-Identifier: Apache-2.0
 * The kernels' bodies on host memory, lane after lane: what they compute, not how fast, nor in which order. */
#ifndef TCK_TESTS_KERNELS_ON_HOST_H
#define TCK_TESTS_KERNELS_ON_HOST_H

#include "base/digest.h"
#include "cuda/kernels.h"
#include "cuda/kernels_core.h"

_Static_assert(DIGEST_CHUNK == CHUNK_BYTES, "the device and the host cut an image into the same chunks");

static inline void on_host_copy(void *to, const void *from, uint64_t bytes)
{
    for (uint32_t dev = 0; dev < COPY_LANES; dev++) {
        copy_core_lane(to, from, bytes, dev);
    }
}

static inline void on_host_gather(const struct gather_piece *pieces, uint32_t count, void *packed)
{
    for (uint32_t i = 0; i < count; i++) {
        on_host_copy((uint8_t *)packed + pieces[i].offset, (const void *)(uintptr_t)pieces[i].addr, pieces[i].bytes);
    }
}

static inline void on_host_scatter(const struct gather_piece *pieces, uint32_t count, const void *packed)
{
    for (uint32_t i = 0; i < count; i++) {
        on_host_copy((void *)(uintptr_t)pieces[i].addr, (const uint8_t *)packed + pieces[i].offset, pieces[i].bytes);
    }
}

static inline void on_host_table(uint32_t *table)
{
    for (uint32_t i = 0; i < DIGEST_ENTRIES; i++) {
        table[i] = digest_core_entry(i);
    }
}

static inline uint32_t on_host_contribution(const void *data, uint64_t bytes, uint64_t after, const uint32_t *table)
{
    uint32_t sum = 0;

    for (uint32_t dev = 0; dev < DIGEST_LANES; dev++) {
        sum ^= digest_core_lane(data, bytes, after, dev, table);
    }
    return sum;
}

static inline void on_host_digest(const void *image, uint64_t bytes, uint32_t *crcs)
{
    uint32_t table[DIGEST_ENTRIES];

    on_host_table(table);
    for (uint32_t i = 0; i < digest_core_chunks(bytes); i++) {
        uint32_t size = digest_core_chunk_size(bytes, i);
        const uint8_t *chunk = (const uint8_t *)image + (uint64_t)i * DIGEST_CHUNK;

        crcs[i] = digest_core_finish(on_host_contribution(chunk, size, 0, table), size);
    }
}

static inline void on_host_digest_pieces(const struct gather_piece *pieces, uint32_t count, uint64_t image_bytes,
                                         uint32_t *crcs)
{
    uint32_t table[DIGEST_ENTRIES];

    on_host_table(table);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t chunk = (uint32_t)(pieces[i].offset / DIGEST_CHUNK);
        uint64_t after = digest_core_after(&pieces[i], image_bytes);

        crcs[chunk] ^= on_host_contribution((const void *)(uintptr_t)pieces[i].addr, pieces[i].bytes, after, table);
    }
}

#endif
