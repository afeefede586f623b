/* SPDX-License-Identifier: Apache-2.0
 * The best kernel is chosen by timing real copies: the first large batches go through each kernel in turn. A
 * benchmark at registration would need memory of its own, which behaves differently and has to be faulted in, or the
 * slots, which may hold a version that is still needed. */
#include "client/host_copy.h"
#include "base/clock.h"
#include "base/digest.h"
#include "client/memcpy_nt.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_BYTES 4096        /* below this, libc's memcpy is best */
#define TIMED_BYTES (2u << 20)  /* batches of at least this size are timed, */
#define TIMED_PIECE (32u << 10) /* if their pieces have at least this size on average */
#define ROUNDS      3           /* each kernel is timed this often, and its best time counts */
#define HEAD_BYTES  256         /* bytes of the next piece that are prefetched */
#define STEP_BYTES  1024        /* checked, and then copied: so short that the processor does both at once */
#define AHEAD_BYTES 4096        /* what is prefetched meanwhile lies so far ahead */
#define STEP_SMALL  256         /* below this, libc's memcpy is best for a part of a step */

struct host_copy {
    struct memcpy_nt kernels[KERNELS_MAX];
    unsigned kernel_count;
    _Atomic unsigned trial;                  /* the next one; ROUNDS * kernel_count: done */
    _Atomic uint64_t best_time[KERNELS_MAX]; /* ns per MiB */
    _Atomic unsigned chosen;
};

static void prefetch_head(const uint8_t *addr, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes && at < HEAD_BYTES; at += 64) {
        __builtin_prefetch(addr + at, 0, 0);
    }
}

static void prefetch_range(const uint8_t *addr, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += 64) {
        __builtin_prefetch(addr + at);
    }
}

static void copy_one(kernel_fn kernel, void *dst, const void *src, uint64_t bytes)
{
    if (bytes < SMALL_BYTES) {
        memcpy(dst, src, bytes);
    } else {
        kernel(dst, src, bytes);
    }
}

static void copy_batch(kernel_fn kernel, const struct piece *pieces, uint32_t count, uint8_t *image)
{
    for (uint32_t i = 0; i < count; i++) {
        if (i + 1 < count) {
            prefetch_head(pieces[i + 1].addr, pieces[i + 1].bytes);
        }
        copy_one(kernel, image + pieces[i].offset, pieces[i].addr, pieces[i].bytes);
    }
    memcpy_nt_fence();
}

static uint64_t batch_bytes(const struct piece *pieces, uint32_t count)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        bytes += pieces[i].bytes;
    }
    return bytes;
}

static void choose(struct host_copy *host)
{
    unsigned best = 0;

    for (unsigned i = 1; i < host->kernel_count; i++) {
        if (atomic_load(&host->best_time[i]) < atomic_load(&host->best_time[best])) {
            best = i;
        }
    }
    atomic_store(&host->chosen, best);
}

/* Measures processor time, since being preempted says nothing about a kernel. If threads overtake each other here, a
 * measurement is lost, and nothing else. */
static void copy_timed(struct host_copy *host, unsigned trial, const struct piece *pieces, uint32_t count,
                       uint8_t *image)
{
    unsigned k = trial % host->kernel_count;
    uint64_t begin_ns = clock_thread_ns(), time;

    copy_batch(host->kernels[k].copy, pieces, count, image);
    time = ((clock_thread_ns() - begin_ns) << 20) / batch_bytes(pieces, count);
    if (time < atomic_load(&host->best_time[k])) {
        atomic_store(&host->best_time[k], time);
    }
    if (trial + 1 == ROUNDS * host->kernel_count) {
        choose(host);
    }
}

static bool worth_timing(const struct host_copy *host, const struct piece *pieces, uint32_t count)
{
    return atomic_load_explicit(&host->trial, memory_order_relaxed) < ROUNDS * host->kernel_count &&
           batch_bytes(pieces, count) >= TIMED_BYTES && batch_bytes(pieces, count) / count >= TIMED_PIECE;
}

void host_copy_to_slot(struct host_copy *host, const struct piece *pieces, uint32_t count, uint8_t *image)
{
    if (worth_timing(host, pieces, count)) {
        unsigned trial = atomic_fetch_add(&host->trial, 1);

        if (trial < ROUNDS * host->kernel_count) {
            copy_timed(host, trial, pieces, count, image);
            return;
        }
    }
    copy_batch(host->kernels[atomic_load(&host->chosen)].copy, pieces, count, image);
}

void host_copy_from_slot(struct host_copy *host, const struct piece *pieces, uint32_t count, const uint8_t *image)
{
    kernel_fn kernel = host->kernels[atomic_load(&host->chosen)].copy;

    for (uint32_t i = 0; i < count; i++) {
        copy_one(kernel, pieces[i].addr, image + pieces[i].offset, pieces[i].bytes);
    }
    memcpy_nt_fence();
}

static void copy_by_libc(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}

/* Copies what lies in [begin, end), and returns how many of the pieces end there. */
static uint32_t copy_step(kernel_fn kernel, const struct piece *pieces, uint32_t count, const uint8_t *image,
                          uint64_t begin, uint64_t end)
{
    uint32_t i = 0;

    for (; i < count && pieces[i].offset < end; i++) {
        uint64_t piece_end = pieces[i].offset + pieces[i].bytes;
        uint64_t from = pieces[i].offset > begin ? pieces[i].offset : begin, to = piece_end < end ? piece_end : end;
        kernel_fn copy = to - from < STEP_SMALL ? copy_by_libc : kernel;

        copy(pieces[i].addr + (from - pieces[i].offset), image + from, to - from);
        if (piece_end > end) {
            break;
        }
    }
    return i;
}

/* Takes the first kernel, whichever is best for whole pieces: "rep movsb" and libc's are slow in such short steps. */
uint32_t host_copy_checked(const struct host_copy *host, const struct piece *pieces, uint32_t count,
                           const uint8_t *image, uint64_t begin, uint64_t end)
{
    uint32_t crc = 0, done = 0;

    for (uint64_t at = begin; at < end; at += STEP_BYTES) {
        uint64_t step_end = end - at < STEP_BYTES ? end : at + STEP_BYTES;

        if (end - at >= AHEAD_BYTES + STEP_BYTES) {
            prefetch_range(image + at + AHEAD_BYTES, STEP_BYTES);
        }
        crc = crc32c(crc, image + at, step_end - at);
        done += copy_step(host->kernels[0].copy, pieces + done, count - done, image, at, step_end);
    }
    memcpy_nt_fence();
    return crc;
}

void host_copy_free(struct host_copy *host)
{
    free(host);
}

tck_status_t host_copy_new(struct host_copy **out, struct error *err)
{
    struct host_copy *host = calloc(1, sizeof(*host));

    if (host == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the copy engine");
    }
    host->kernel_count = memcpy_nt_list(host->kernels);
    for (unsigned i = 0; i < host->kernel_count; i++) {
        atomic_init(&host->best_time[i], UINT64_MAX);
    }
    *out = host;
    return TCK_OK;
}
