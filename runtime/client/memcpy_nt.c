/* SPDX-License-Identifier: Apache-2.0
 * The copy kernels: non-temporal stores avoid reading each destination line, and "rep movsb" achieves the same inside
 * the CPU. */
#include "client/memcpy_nt.h"

#include <stdint.h>
#include <string.h>

static void copy_libc(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}

#if defined(__x86_64__)
#include <immintrin.h>

#define LINE           64
#define PREFETCH_AHEAD 512
#define HALVED_BYTES   (256u << 10) /* stretches of at least this size are copied at two places at once */

static void copy_movsb(void *dst, const void *src, size_t bytes)
{
    __asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(bytes) : : "memory");
}

/* Bytes up to the next cache line of dst; memcpy copies them. */
static size_t copy_head(uint8_t *dst, const uint8_t *src, size_t bytes)
{
    size_t head = (size_t)(-(uintptr_t)dst % LINE);

    head = head < bytes ? head : bytes;
    memcpy(dst, src, head);
    return head;
}

__attribute__((target("avx512f"))) static void copy_avx512(void *dst, const void *src, size_t bytes)
{
    uint8_t *to = dst;
    const uint8_t *from = src;
    size_t at = copy_head(to, from, bytes);

    for (; bytes - at >= LINE; at += LINE) {
        _mm512_stream_si512((void *)(to + at), _mm512_loadu_si512(from + at));
    }
    memcpy(to + at, from + at, bytes - at);
}

__attribute__((target("avx512f"))) static void copy_avx512_prefetch(void *dst, const void *src, size_t bytes)
{
    uint8_t *to = dst;
    const uint8_t *from = src;
    size_t at = copy_head(to, from, bytes);

    for (; bytes - at >= LINE; at += LINE) {
        _mm_prefetch((const char *)from + at + PREFETCH_AHEAD, _MM_HINT_NTA);
        _mm512_stream_si512((void *)(to + at), _mm512_loadu_si512(from + at));
    }
    memcpy(to + at, from + at, bytes - at);
}

/* Copies both halves side by side, so that the hardware prefetchers follow two streams. */
__attribute__((target("avx512f"))) static void copy_avx512_halves(void *dst, const void *src, size_t bytes)
{
    size_t head = copy_head(dst, src, bytes), half = (bytes - head) / LINE / 2 * LINE;
    uint8_t *low = (uint8_t *)dst + head, *high = low + half;
    const uint8_t *from_low = (const uint8_t *)src + head, *from_high = from_low + half;

    if (bytes < HALVED_BYTES) {
        copy_avx512(dst, src, bytes);
        return;
    }
    for (size_t at = 0; at < half; at += LINE) {
        _mm512_stream_si512((void *)(low + at), _mm512_loadu_si512(from_low + at));
        _mm512_stream_si512((void *)(high + at), _mm512_loadu_si512(from_high + at));
    }
    memcpy(high + half, from_high + half, bytes - head - 2 * half);
}

__attribute__((target("avx2"))) static void copy_avx2(void *dst, const void *src, size_t bytes)
{
    uint8_t *to = dst;
    const uint8_t *from = src;
    size_t at = copy_head(to, from, bytes);

    for (; bytes - at >= LINE; at += LINE) {
        _mm_prefetch((const char *)from + at + PREFETCH_AHEAD, _MM_HINT_NTA);
        _mm256_stream_si256((void *)(to + at), _mm256_loadu_si256((const void *)(from + at)));
        _mm256_stream_si256((void *)(to + at + 32), _mm256_loadu_si256((const void *)(from + at + 32)));
    }
    memcpy(to + at, from + at, bytes - at);
}

unsigned memcpy_nt_list(struct memcpy_nt out[KERNELS_MAX])
{
    unsigned count = 0;

    if (__builtin_cpu_supports("avx512f")) {
        out[count++] = (struct memcpy_nt){"avx512_nt", copy_avx512};
        out[count++] = (struct memcpy_nt){"avx512_nt_prefetch", copy_avx512_prefetch};
        out[count++] = (struct memcpy_nt){"avx512_nt_halves", copy_avx512_halves};
    } else if (__builtin_cpu_supports("avx2")) {
        out[count++] = (struct memcpy_nt){"avx2_nt", copy_avx2};
    }
    out[count++] = (struct memcpy_nt){"movsb", copy_movsb};
    out[count++] = (struct memcpy_nt){"libc", copy_libc};
    return count;
}

void memcpy_nt_fence(void)
{
    _mm_sfence();
}
#else
unsigned memcpy_nt_list(struct memcpy_nt out[KERNELS_MAX])
{
    out[0] = (struct memcpy_nt){"libc", copy_libc};
    return 1;
}

void memcpy_nt_fence(void)
{
    __atomic_thread_fence(__ATOMIC_RELEASE);
}
#endif
