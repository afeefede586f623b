/* SPDX-License-Identifier: Apache-2.0
 * What one lane (a thread on the device) of each kernel does. Plain C, so that tests on the host can run the same code,
 * lane by lane.
 *
 * Digests. Except for its inversions, a CRC32C is linear: that of a chunk is the XOR of the contributions of its
 * bytes, and bytes that are followed by k others contribute their own CRC (begun with 0) times x^(8k), modulo the
 * polynomial. So each lane handles every 256th unit of 16 bytes and keeps four sums of one word each. Look-ups in
 * four tables shift a sum by one row of all lanes. At the end, the sums are shifted by the number of bytes that
 * follow them in the chunk. */
#ifndef TCK_CUDA_KERNELS_CORE_H
#define TCK_CUDA_KERNELS_CORE_H

#include "cuda/gather_piece.h"

#ifdef __CUDACC__
#define TCK_HD static __host__ __device__ inline
#else
#define TCK_HD static inline
#endif

/* ---- copying ------------------------------------------------------------------------------------------------- */

#define COPY_LANES  32
#define COPY_STRIDE UINT64_C(32)

struct unit16 {
    uint64_t lo, hi;
}
#ifdef __CUDACC__
__align__(16);
#else
__attribute__((aligned(16)));
#endif

/* Copies units from..to of a type that both addresses are aligned to. Four are read before the first is written,
 * because the compiler has to assume that a write may change what is read next. */
#define COPY_UNITS(type)                                                                                               \
    do {                                                                                                               \
        const type *from = (const type *)src;                                                                          \
        type *to = (type *)dst; /* NOLINT(bugprone-macro-parentheses) */                                               \
        uint64_t units = bytes / sizeof(type), i = lane;                                                               \
                                                                                                                       \
        for (; i + 3 * COPY_STRIDE < units; i += 4 * COPY_STRIDE) {                                                    \
            type a = from[i], b = from[i + COPY_STRIDE], c = from[i + 2 * COPY_STRIDE], d = from[i + 3 * COPY_STRIDE]; \
                                                                                                                       \
            to[i] = a;                                                                                                 \
            to[i + COPY_STRIDE] = b;                                                                                   \
            to[i + 2 * COPY_STRIDE] = c;                                                                               \
            to[i + 3 * COPY_STRIDE] = d;                                                                               \
        }                                                                                                              \
        for (; i < units; i += COPY_STRIDE) {                                                                          \
            to[i] = from[i];                                                                                           \
        }                                                                                                              \
        return units * sizeof(type);                                                                                   \
    } while (0)

/* Copies all complete units of the widest type that both addresses are aligned to; returns how many bytes all lanes
 * copy together. */
TCK_HD uint64_t copy_core_units(uint8_t *dst, const uint8_t *src, uint64_t bytes, uint32_t lane)
{
    switch (((uintptr_t)dst | (uintptr_t)src) & 15) {
    case 0:
        COPY_UNITS(struct unit16);
    case 8:
        COPY_UNITS(uint64_t);
    case 4:
    case 12:
        COPY_UNITS(uint32_t);
    case 2:
    case 6:
    case 10:
    case 14:
        COPY_UNITS(uint16_t);
    default:
        COPY_UNITS(uint8_t);
    }
}

/* This lane's part of a copy by COPY_LANES lanes. */
TCK_HD void copy_core_lane(void *to, const void *from, uint64_t bytes, uint32_t lane)
{
    uint8_t *dst = (uint8_t *)to;
    const uint8_t *src = (const uint8_t *)from;
    uint64_t head = (16 - ((uintptr_t)dst & 15)) & 15, done;

    head = head < bytes ? head : bytes;
    if (lane < head) {
        dst[lane] = src[lane];
    }
    done = head + copy_core_units(dst + head, src + head, bytes - head, lane);
    if (lane < bytes - done) { /* less than a unit is left */
        dst[done + lane] = src[done + lane];
    }
}

/* ---- digests ------------------------------------------------------------------------------------------------- */

#define DIGEST_CHUNK   4194304u /* CHUNK_BYTES of base/digest.h, whose functions the device cannot call */
#define DIGEST_LANES   256
#define DIGEST_ROW     UINT64_C(4096) /* bytes that the lanes handle at a time, 16 each */
#define DIGEST_ENTRIES (4 * 256)
#define DIGEST_POLY    0x82F63B78u /* Castagnoli's, lowest bit first: bit 31 is x^0 */
#define DIGEST_X8      0x00800000u

TCK_HD uint32_t digest_core_chunks(uint64_t image_bytes)
{
    return (uint32_t)((image_bytes + DIGEST_CHUNK - 1) / DIGEST_CHUNK);
}

TCK_HD uint32_t digest_core_chunk_size(uint64_t image_bytes, uint32_t i)
{
    uint64_t left = image_bytes - (uint64_t)i * DIGEST_CHUNK;

    return left < DIGEST_CHUNK ? (uint32_t)left : DIGEST_CHUNK;
}

/* Bytes that follow a piece in its chunk. */
TCK_HD uint64_t digest_core_after(const struct gather_piece *piece, uint64_t image_bytes)
{
    uint32_t size = digest_core_chunk_size(image_bytes, (uint32_t)(piece->offset / DIGEST_CHUNK));

    return size - piece->offset % DIGEST_CHUNK - piece->bytes;
}

TCK_HD uint32_t digest_core_multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (int i = 0; i < 32; i++) {
        product ^= b & (0u - (a >> 31));
        a <<= 1;
        b = b >> 1 ^ (DIGEST_POLY & (0u - (b & 1)));
    }
    return product;
}

/* Extends a CRC that began with 0 by so many zero bytes. */
TCK_HD uint32_t digest_core_shift(uint32_t crc, uint64_t bytes)
{
    uint32_t power = DIGEST_X8;

    for (; bytes > 0; bytes >>= 1) {
        if (bytes & 1) {
            crc = digest_core_multiply(crc, power);
        }
        power = digest_core_multiply(power, power);
    }
    return crc;
}

/* Entry i of the table that shifts a word by one row. */
TCK_HD uint32_t digest_core_entry(uint32_t i)
{
    return digest_core_shift((i & 255) << (i / 256 * 8), DIGEST_ROW);
}

TCK_HD uint32_t digest_core_row(const uint32_t *table, uint32_t word)
{
    return table[word & 255] ^ table[256 + (word >> 8 & 255)] ^ table[512 + (word >> 16 & 255)] ^
           table[768 + (word >> 24)];
}

/* For ends that are shorter than a unit. */
TCK_HD uint32_t digest_core_bytes(const uint8_t *addr, uint64_t bytes)
{
    uint32_t crc = 0;

    for (uint64_t i = 0; i < bytes; i++) {
        crc ^= addr[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (DIGEST_POLY & (0u - (crc & 1)));
        }
    }
    return crc;
}

/* The CRC over this lane's units in complete rows, up to the end of the last row, as if all other bytes were zeros. */
TCK_HD uint32_t digest_core_rows(const uint8_t *addr, uint64_t rows, uint32_t lane, const uint32_t *table)
{
    const struct unit16 *units = (const struct unit16 *)addr + lane;
    uint32_t a = 0, b = 0, c = 0, d = 0;

    for (uint64_t row = 0; row < rows; row++) {
        struct unit16 unit = units[row * DIGEST_LANES];

        a = digest_core_row(table, a) ^ (uint32_t)unit.lo;
        b = digest_core_row(table, b) ^ (uint32_t)(unit.lo >> 32);
        c = digest_core_row(table, c) ^ (uint32_t)unit.hi;
        d = digest_core_row(table, d) ^ (uint32_t)(unit.hi >> 32);
    }
    a = digest_core_shift(a, 4) ^ b;
    a = digest_core_shift(a, 4) ^ c;
    a = digest_core_shift(a, 4) ^ d;
    return digest_core_shift(a, 4);
}

/* This lane's part of the contribution of these bytes to the CRC of a chunk in which `after` bytes follow them. The
 * contribution is the XOR of the parts of all DIGEST_LANES lanes. */
TCK_HD uint32_t digest_core_lane(const void *data, uint64_t bytes, uint64_t after, uint32_t lane, const uint32_t *table)
{
    const uint8_t *addr = (const uint8_t *)data;
    uint64_t head = (16 - ((uintptr_t)addr & 15)) & 15, rows, tail, begin = lane * UINT64_C(16), end;
    uint32_t sum = 0;

    head = head < bytes ? head : bytes;
    rows = (bytes - head) / DIGEST_ROW;
    tail = (bytes - head) % DIGEST_ROW;
    if (lane == 0 && head > 0) {
        sum = digest_core_shift(digest_core_bytes(addr, head), bytes - head + after);
    }
    addr += head;
    if (rows > 0) {
        sum ^= digest_core_shift(digest_core_rows(addr, rows, lane, table), DIGEST_ROW - begin - 16 + tail + after);
    }
    if (begin < tail) {
        end = begin + 16 < tail ? begin + 16 : tail;
        sum ^= digest_core_shift(digest_core_bytes(addr + rows * DIGEST_ROW + begin, end - begin), tail - end + after);
    }
    return sum;
}

/* The CRC32C of a chunk, from the contributions of all its bytes. */
TCK_HD uint32_t digest_core_finish(uint32_t sum, uint64_t chunk_bytes)
{
    return ~(sum ^ digest_core_shift(~0u, chunk_bytes));
}

#endif
