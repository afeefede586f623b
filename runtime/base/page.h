/* SPDX-License-Identifier: Apache-2.0
 * Mapping parts of files on machines whose pages are larger than the 4096 bytes that our formats are made of (arm64:
 * 16 and 64 KiB). Pure: the page size is an argument. */
#ifndef TCK_BASE_PAGE_H
#define TCK_BASE_PAGE_H

#include <stddef.h>
#include <stdint.h>

/* How to map `bytes` of a file from some offset on: the offset to pass to mmap, and the distance of the wanted bytes
 * from the start of the mapping. */
struct page_window {
    uint64_t offset;
    size_t bytes, skip;
};

/* page: a power of two. */
static inline struct page_window page_window_of(uint64_t offset, size_t bytes, size_t page)
{
    size_t skip = (size_t)(offset & (page - 1));
    return (struct page_window){.offset = offset - skip, .bytes = bytes + skip, .skip = skip};
}

/* The end of the last page that has any of these bytes, which begin at a page. */
static inline uint64_t page_end(uint64_t bytes, size_t page)
{
    return (bytes + page - 1) & ~((uint64_t)page - 1);
}

#endif
