/* SPDX-License-Identifier: Apache-2.0
 * CRC32C by ISA-L and XXH3-128 by xxHash. */
#include "base/digest.h"

#include <endian.h>
#include <isa-l/crc.h>
#include <pthread.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Memory that is in no cache is read faster if it is prefetched a page ahead, because the hardware's prefetchers
 * stop at each page boundary. ISA-L takes the length as an int, which a step always fits. */
#define CRC_STEP_BYTES       2048u
#define PREFETCH_AHEAD_BYTES 4096u
#define LINE_BYTES           64u

static void prefetch(const unsigned char *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += LINE_BYTES) {
        __builtin_prefetch(from + at);
    }
}

uint32_t crc32c(uint32_t crc_start, const void *data, size_t len)
{
    union {
        const void *data;
        unsigned char *unqualified; /* ISA-L's parameter is not const, but it only reads */
    } at = {data};
    uint32_t crc = ~crc_start; /* ISA-L leaves the inversion before and after to its callers */

    while (len > 0) {
        size_t step = len < CRC_STEP_BYTES ? len : CRC_STEP_BYTES;

        if (len >= PREFETCH_AHEAD_BYTES + CRC_STEP_BYTES) {
            prefetch(at.unqualified + PREFETCH_AHEAD_BYTES, CRC_STEP_BYTES);
        }
        crc = crc32_iscsi(at.unqualified, (int)step, crc);
        at.unqualified += step;
        len -= step;
    }
    return ~crc;
}

/* The CRC after so many zero bytes. */
static uint32_t after_zeros(uint32_t crc, uint64_t bytes)
{
    static const unsigned char zeros[CRC_STEP_BYTES];
    while (bytes > 0) {
        size_t step = bytes < sizeof(zeros) ? (size_t)bytes : sizeof(zeros);
        crc = crc32c(crc, zeros, step);
        bytes -= step;
    }
    return crc;
}

/* What comes after the first piece moves its CRC on as zeros would, a linear function: of each bit for itself. */
static uint32_t moved_on(uint32_t crc, uint64_t bytes)
{
    return after_zeros(crc, bytes) ^ after_zeros(0, bytes);
}

uint32_t crc32c_join(uint32_t first, uint32_t second, uint64_t second_bytes)
{
    return moved_on(first, second_bytes) ^ second;
}

static pthread_once_t chunk_once = PTHREAD_ONCE_INIT;
static uint32_t chunk_moves[32]; /* what each bit becomes after a whole chunk */

static void make_chunk_moves(void)
{
    for (uint32_t bit = 0; bit < 32; bit++) {
        chunk_moves[bit] = moved_on(UINT32_C(1) << bit, CHUNK_BYTES);
    }
}

static uint32_t join_chunk(uint32_t first, uint32_t second)
{
    for (uint32_t bit = 0; bit < 32; bit++) {
        second ^= first >> bit & 1u ? chunk_moves[bit] : 0;
    }
    return second;
}

uint32_t crc32c_of_chunks(const uint32_t *crcs, uint64_t image_bytes, uint32_t begin, uint32_t count)
{
    uint32_t crc = crcs[begin];
    pthread_once(&chunk_once, make_chunk_moves);
    for (uint32_t i = begin + 1; i < begin + count; i++) {
        uint32_t bytes = chunk_size(image_bytes, i);
        crc = bytes == CHUNK_BYTES ? join_chunk(crc, crcs[i]) : crc32c_join(crc, crcs[i], bytes);
    }
    return crc;
}

uint32_t chunk_crc(const void *image, uint64_t image_bytes, uint32_t i)
{
    const uint8_t *bytes = image;
    return crc32c(0, bytes + (uint64_t)i * CHUNK_BYTES, chunk_size(image_bytes, i));
}

static struct hash128 from_xxh(XXH128_hash_t hash)
{
    return (struct hash128){.hi = hash.high64, .lo = hash.low64};
}

struct hash128 hash128_of(const void *data, size_t len)
{
    return from_xxh(XXH3_128bits(data, len));
}

struct hash128 digest_root(const uint32_t *crcs, uint64_t image_bytes)
{
    uint32_t count = chunk_count(image_bytes);
    uint64_t length = htole64(image_bytes);
    XXH3_state_t state;

    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, &length, sizeof(length));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t crc = htole32(crcs[i]);

        XXH3_128bits_update(&state, &crc, sizeof(crc));
    }
    return from_xxh(XXH3_128bits_digest(&state));
}

struct hash128 digest_image(const void *image, uint64_t image_bytes, uint32_t *crcs)
{
    uint32_t count = chunk_count(image_bytes);

    for (uint32_t i = 0; i < count; i++) {
        crcs[i] = chunk_crc(image, image_bytes, i);
    }
    return digest_root(crcs, image_bytes);
}
