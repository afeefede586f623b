/* SPDX-License-Identifier: Apache-2.0
 * Touched memory and plain copies. */
#include "buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define HUGE_PAGE ((size_t)2 << 20)

static int shared_file(const struct bench *bench)
{
    int fd = bench->huge[0] != '\0' ? open(bench->huge, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)
                                    : memfd_create("bench", MFD_CLOEXEC);
    if (fd < 0) {
        bench_die("shared memory: %s", strerror(errno));
    }
    return fd;
}

static void *map(int fd, int flags, size_t bytes)
{
    /* One huge page more than asked for, to align it. */
    char *at = mmap(NULL, bytes + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        bench_die("map %zu bytes: %s", bytes, strerror(errno));
    }
    at += (HUGE_PAGE - (uintptr_t)at % HUGE_PAGE) % HUGE_PAGE;
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) == MAP_FAILED) {
        bench_die("map %zu bytes: %s", bytes, strerror(errno));
    }
    (void)madvise(at, bytes, MADV_HUGEPAGE);
    return at;
}

void *buffer_shared(const struct bench *bench, size_t bytes)
{
    int fd = shared_file(bench);
    if (ftruncate(fd, (off_t)bytes) != 0) {
        bench_die("shared memory of %zu bytes: %s", bytes, strerror(errno));
    }
    void *data = map(fd, MAP_SHARED, bytes);
    close(fd);
    memset(data, 1, bytes);
    return data;
}

void *buffer_private(size_t bytes)
{
    void *data = map(-1, MAP_PRIVATE | MAP_ANONYMOUS, bytes);
    buffer_fill(data, bytes, 1);
    return data;
}

void buffer_free(void *data, size_t bytes)
{
    munmap(data, bytes);
}

void buffer_fill(void *data, size_t bytes, uint64_t seed)
{
    uint64_t *words = data;
    for (size_t i = 0; i < bytes / sizeof(*words); i++) {
        words[i] = (seed + i) * 0x9e3779b97f4a7c15u;
    }
}

/* ---- copies ---------------------------------------------------------------------------------------------------- */

static void run_memcpy(void *ctx, struct bench_go *go)
{
    const struct copy_job *job = ctx;
    bench_start(go);
    memcpy(job->to, job->from, job->bytes);
    bench_stop(go);
}

#if defined(__x86_64__)
static void run_movsb(void *ctx, struct bench_go *go)
{
    const struct copy_job *job = ctx;
    void *to = job->to;
    const void *from = job->from;
    size_t bytes = job->bytes;
    bench_start(go);
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
    bench_stop(go);
}

__attribute__((target("avx512f"))) static void run_nt(void *ctx, struct bench_go *go)
{
    const struct copy_job *job = ctx;
    char *to = job->to;
    const char *from = job->from;
    bench_start(go);
    for (size_t i = 0; i < job->bytes; i += 64) {
        _mm512_stream_si512((void *)(to + i), _mm512_loadu_si512(from + i));
    }
    _mm_sfence();
    bench_stop(go);
}
#endif

uint32_t copy_ways(struct copy_job *job, struct bench_way ways[COPY_WAYS_MAX])
{
    uint32_t count = 0;
    ways[count++] = (struct bench_way){.name = "memcpy of libc", .run = run_memcpy, .ctx = job};
#if defined(__x86_64__)
    ways[count++] = (struct bench_way){.name = "copy by rep movsb", .run = run_movsb, .ctx = job};
    if (__builtin_cpu_supports("avx512f") && job->bytes % 64 == 0) {
        ways[count++] = (struct bench_way){.name = "copy by AVX-512 NT stores", .run = run_nt, .ctx = job};
    }
#endif
    return count;
}
