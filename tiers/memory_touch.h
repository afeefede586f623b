/* SPDX-License-Identifier: Apache-2.0
 * Faults in the pages of a mapping, and reads their size from the kernel. */
#ifndef TCK_TIERS_MEMORY_TOUCH_H
#define TCK_TIERS_MEMORY_TOUCH_H

#include "base/cpus.h"
#include "base/progress.h"
#include "base/status.h"

#define PAGE_BYTES      4096u
#define HUGE_PAGE_BYTES (2u << 20)

/* A mapped part of a file. */
struct page_range {
    int fd;
    uint64_t offset; /* in the file */
    uint8_t *base;   /* where it is mapped */
    uint64_t bytes;
    const struct cpus *near; /* whose memory is wanted; not NULL */
};

/* Faults in every page of a range without pages with `threads` threads, as huge pages where available. An error, never
 * a SIGBUS, if the file's mount has no space. The bytes are added to progress (NULL: not counted) as they are
 * touched.
 */
must_check tck_status_t pages_touch(const struct page_range *range, uint32_t threads, struct progress *progress,
                                    struct error *err);

/* The page size of most of the mapping that begins at base; untouched pages do not count. */
uint32_t pages_size_at(const uint8_t *base);

#endif
