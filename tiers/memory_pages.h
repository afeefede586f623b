/* SPDX-License-Identifier: Apache-2.0
 * Mapped shared memory files whose pages are all allocated before their first use: of 2 MiB where available, else of
 * 4 KiB. A first copy that has to fault in its pages takes as long as 12 later ones (4 KiB) or 1.5 (2 MiB), and one
 * that gets no page dies of SIGBUS. */
#ifndef TCK_TIERS_MEMORY_PAGES_H
#define TCK_TIERS_MEMORY_PAGES_H

#include "tiers/memory_touch.h"
#include <stdbool.h>

struct pages {
    int fd;
    uint8_t *base; /* aligned to HUGE_PAGE_BYTES */
    uint64_t bytes;
    uint32_t page_bytes; /* of most of the mapping, as reported by the kernel */
    bool sealed;         /* it can neither shrink nor grow */
    const char *way;     /* how it was made, for the log; static */
    struct cpus near;    /* near which its pages are allocated */
};

/* The request for a file of zeros. */
struct pages_wish {
    uint64_t bytes;
    uint64_t touched; /* the first ones, which get pages */
    bool huge;        /* try for huge pages: bytes and touched are then multiples of HUGE_PAGE_BYTES */
    struct cpus near; /* the processors that will fill it */
};

struct page_source;

/* Finds out by trial how to get huge pages here. mount: a tmpfs mount with huge=advise or always, "" if none; threads:
 * the number that touch pages, which count in progress (NULL: not counted). */
must_check tck_status_t page_source_new(const char *mount, uint32_t threads, struct progress *progress,
                                        struct page_source **out, struct error *err);
void page_source_free(struct page_source *source);

/* A new file. All of it has pages where they are reserved for hugetlb, since pages_remove could not free them either.
 * TCK_ERR_NOSPC, before a page is touched, if the machine or the cgroup cannot spare the bytes. */
must_check tck_status_t pages_make(const struct page_source *source, const struct pages_wish *wish, struct pages *out,
                                   struct error *err);
/* Maps a file that pages_make made in an earlier process. Takes over fd on success. */
must_check tck_status_t pages_map(int fd, struct pages *out, struct error *err);
/* Whether pages can be removed, and are then free for all: not those reserved for hugetlb. */
bool pages_removable(const struct pages *pages);
/* Removes the pages of a range, whose content is lost, in all processes that map them. None of them may be pinned: the
 * process that has pinned it would keep using the removed page. */
must_check tck_status_t pages_remove(const struct pages *pages, uint64_t offset, uint64_t bytes, struct error *err);
/* Allocates them again. TCK_ERR_NOSPC if the machine or the cgroup cannot spare the bytes. */
must_check tck_status_t pages_refill(const struct pages *pages, uint64_t offset, uint64_t bytes, uint32_t threads,
                                     struct error *err);
/* Whether any, and whether all pages of a range are allocated. */
bool pages_any(const struct pages *pages, uint64_t offset, uint64_t bytes);
bool pages_all(const struct pages *pages, uint64_t offset, uint64_t bytes);
void pages_free(struct pages *pages); /* unmaps base unless NULL, closes fd unless -1 */

#endif
