/* SPDX-License-Identifier: Apache-2.0
 * Touches pages by madvise. There are two ways to get huge pages: the fault itself, where the file's mount or the
 * system allows it; else MADV_COLLAPSE (Linux 6.1), which turns touched 4 KiB pages into huge ones regardless of
 * shmem_enabled and without privileges. */
#include "tiers/memory_touch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define THREADS_MAX 64u
#define LINE_BYTES  512
#define STEP_BYTES  (64ull << 20) /* touched at once, then counted */

/* The work of one thread. */
struct toucher {
    pthread_t thread;
    struct page_range range;
    int error; /* errno; 0: success */
    bool started;
    bool populate; /* the kernel has MADV_POPULATE_WRITE (Linux 5.14) */
    bool huge;     /* and huge pages are wanted */
    struct progress *progress;
};

/* Touches one page per huge page: either the fault brings in all of it, or MADV_COLLAPSE, which skips empty ranges,
 * finds it. Without contiguous memory, the range gets small pages afterwards. */
static void make_huge(uint8_t *base, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += HUGE_PAGE_BYTES) {
        if (madvise(base + at, PAGE_BYTES, MADV_POPULATE_WRITE) != 0) {
            return; /* the later madvise over the whole range reports it */
        }
    }
    (void)madvise(base, bytes, MADV_COLLAPSE);
}

/* Writing to a page for which the mount has no space raises SIGBUS; posix_fallocate returns an error. */
static int allocate_and_write(const struct page_range *range)
{
    int error = posix_fallocate(range->fd, (off_t)range->offset, (off_t)range->bytes);
    for (uint64_t at = 0; error == 0 && at < range->bytes; at += PAGE_BYTES) {
        ((volatile uint8_t *)range->base)[at] = 0;
    }
    return error;
}

static int touch_step(const struct toucher *toucher, const struct page_range *step)
{
    if (!toucher->populate) {
        return allocate_and_write(step);
    }
    if (toucher->huge) {
        make_huge(step->base, step->bytes);
    }
    return madvise(step->base, step->bytes, MADV_POPULATE_WRITE) != 0 ? errno : 0;
}

static struct page_range part_of(const struct page_range *whole, uint64_t at, uint64_t most)
{
    struct page_range part = *whole;
    part.offset += at;
    part.base += at;
    part.bytes = whole->bytes - at < most ? whole->bytes - at : most;
    return part;
}

static void touch_run(struct toucher *toucher)
{
    for (uint64_t at = 0; at < toucher->range.bytes && toucher->error == 0; at += STEP_BYTES) {
        struct page_range step = part_of(&toucher->range, at, STEP_BYTES);
        toucher->error = touch_step(toucher, &step);
        progress_add(toucher->progress, step.bytes);
    }
}

static void *touch_thread(void *ctx)
{
    struct toucher *toucher = ctx;
    cpus_run_on(toucher->range.near);
    touch_run(toucher);
    return NULL;
}

/* Runs the parts in threads; those whose thread does not start run in this one, as does the first part unless
 * `elsewhere`. Returns the first errno. */
static int touch_parts(struct toucher *parts, uint32_t count, bool elsewhere)
{
    int error = 0;
    for (uint32_t i = elsewhere ? 0 : 1; i < count; i++) {
        parts[i].started = pthread_create(&parts[i].thread, NULL, touch_thread, &parts[i]) == 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (parts[i].started) {
            pthread_join(parts[i].thread, NULL);
        } else {
            touch_run(&parts[i]);
        }
        error = error == 0 ? parts[i].error : error;
    }
    return error;
}

/* Splits at huge page boundaries. Returns the number of parts. */
static uint32_t split(const struct toucher *whole, uint32_t threads, struct toucher parts[THREADS_MAX])
{
    uint64_t places = (whole->range.bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES;
    uint32_t wanted = threads < 1 ? 1 : threads > THREADS_MAX ? THREADS_MAX : threads;
    uint64_t step = (places + wanted - 1) / wanted * HUGE_PAGE_BYTES;
    uint32_t count = 0;
    for (uint64_t at = 0; at < whole->range.bytes; at += step, count++) {
        parts[count] = *whole;
        parts[count].range = part_of(&whole->range, at, step);
    }
    return count;
}

tck_status_t pages_touch(const struct page_range *range, uint32_t threads, struct progress *progress, struct error *err)
{
    uint64_t bytes = range->bytes;
    struct toucher parts[THREADS_MAX];
    struct toucher whole = {.range = *range, .progress = progress};
    whole.populate = madvise(range->base, 0, MADV_POPULATE_WRITE) == 0;
    whole.huge = bytes % HUGE_PAGE_BYTES == 0 && madvise(range->base, bytes, MADV_HUGEPAGE) == 0;
    int error = touch_parts(parts, split(&whole, threads, parts), !cpus_is_none(range->near));
    if (error != 0) {
        /* EFAULT: a direct access would have raised SIGBUS. */
        tck_status_t status = error == EFAULT ? TCK_ERR_NOSPC : status_of_errno(error);
        errno = error;
        return error_set(err, status, "touch %" PRIu64 " bytes: %m", bytes);
    }
    return TCK_OK;
}

/* ---- page size ----------------------------------------------------------------------------------------------- */

/* The lines of /proc/self/smaps about one mapping, in KiB. */
struct smaps {
    uint64_t page, rss, pmd_mapped;
};

static void take_line(const char *line, struct smaps *out)
{
    uint64_t kib;
    if (sscanf(line, "KernelPageSize: %" SCNu64, &kib) == 1) {
        out->page = kib;
    } else if (sscanf(line, "Rss: %" SCNu64, &kib) == 1) {
        out->rss = kib;
    } else if (sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1) {
        out->pmd_mapped = kib;
    }
}

/* A mapping's lines follow one that begins with "<first>-<end> " in hex; no other line begins like that. */
static struct smaps read_smaps(const uint8_t *base)
{
    char line[LINE_BYTES];
    bool inside = false;
    struct smaps found = {0};
    FILE *file = fopen("/proc/self/smaps", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        uintptr_t first, end;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &first, &end) != 2) {
            if (inside) {
                take_line(line, &found);
            }
        } else if (inside) {
            break; /* the kernel walks page tables as we read, so read no further than needed */
        } else {
            inside = first == (uintptr_t)base;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

uint32_t pages_size_at(const uint8_t *base)
{
    struct smaps smaps = read_smaps(base);
    bool huge = smaps.page * 1024 >= HUGE_PAGE_BYTES || (smaps.pmd_mapped > 0 && smaps.pmd_mapped * 2 >= smaps.rss);
    uint32_t small = smaps.page > 0 ? (uint32_t)smaps.page * 1024 : (uint32_t)sysconf(_SC_PAGESIZE);
    return huge ? HUGE_PAGE_BYTES : small;
}
