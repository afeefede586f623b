/* SPDX-License-Identifier: Apache-2.0
 * One segment from the inside, for memory.c. Its meta file holds per slot: header page A, header page B, and the table
 * of chunk CRCs padded to a page; then the page of seals, the only one that trainers may write. The public interface is
 * segment.h. */
#ifndef TCK_TIERS_SEGMENT_IMPL_H
#define TCK_TIERS_SEGMENT_IMPL_H

#include "tiers/memory_pages.h"
#include "tiers/slot_header.h"
#include <pthread.h>

struct segment {
    struct hash128 id;
    char job[CONFIG_NAME];
    struct hash128 shard;
    uint64_t image_bytes, slot_stride;
    uint32_t slot_count;
    uint32_t used; /* so many slots are needed */
    bool opened;   /* what lacks pages was found so, and may have been given back because memory was short */
    struct pages data, meta;
    pthread_mutex_t lock; /* of headers: only the loop's thread writes, a check of the slot reads in another */
    struct slot_header headers[CORE_SLOTS_MAX];
    uint32_t newest_page[CORE_SLOTS_MAX]; /* 0 or 1 */
    bool given_back[CORE_SLOTS_MAX], unproven[CORE_SLOTS_MAX];
    pthread_mutex_t removal; /* of pages, which depends on whether they are pinned */
};

/* TCK_ERR_INVAL if there can be no such segment. */
must_check tck_status_t segment_check(const struct segment_wish *wish, struct error *err);
/* What both files together need, for a wish that passed segment_check. */
uint64_t segment_bytes(const struct segment_wish *wish);

/* A new segment with all slots free, the pages of those that are used touched. */
must_check tck_status_t segment_make(const char *job, const struct segment_wish *wish, const struct page_source *source,
                                     struct segment **out, struct error *err);
/* Rebuilds a segment of this job from its two files alone and takes over both on success. A slot that lost both header
 * pages becomes free; files that contradict each other or their headers are TCK_ERR_CORRUPT. */
must_check tck_status_t segment_open(struct hash128 id, const char *job, int data_fd, int meta_fd, struct segment **out,
                                     struct error *err);
void segment_free(struct segment *segment);
/* What is needed of both files together; all of it where pages cannot be given back. */
uint64_t segment_needed_bytes(const struct segment *segment);
/* What has pages, or will have them when memory is no longer short. */
uint64_t segment_held_bytes(const struct segment *segment);

#endif
