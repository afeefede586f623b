/* SPDX-License-Identifier: Apache-2.0
 * Parts of files are mapped at offsets that are valid for every page size. */
#include "base/page.h"
#include "base/seal.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const size_t page_sizes[] = {4096, 16384, 65536};

Test(page, windows_begin_at_a_page_and_have_what_is_wanted)
{
    for (size_t i = 0; i < sizeof(page_sizes) / sizeof(page_sizes[0]); i++) {
        size_t page = page_sizes[i];
        for (uint64_t offset = 0; offset < 3 * UINT64_C(65536); offset += 4096) {
            struct page_window w = page_window_of(offset, SEALS_BYTES, page);
            cr_assert_eq(w.offset % page, 0, "page %zu, offset %lu", page, (unsigned long)offset);
            cr_assert_eq(w.offset + w.skip, offset);
            cr_assert_lt(w.skip, page);
            cr_assert_eq(w.bytes - w.skip, (size_t)SEALS_BYTES);
        }
    }
}

Test(page, ends_are_those_of_the_last_page_in_use)
{
    cr_assert_eq(page_end(4096, 4096), 4096);
    cr_assert_eq(page_end(4096, 65536), 65536);
    cr_assert_eq(page_end(65536, 65536), 65536);
    cr_assert_eq(page_end(65536 + 4096, 16384), 65536 + 16384);
    cr_assert_eq(page_end(0, 65536), 0);
}

/* The seals of a segment lie at the end of a file whose size is a multiple of 4096 and of nothing else. A window for
 * larger pages is also valid for this machine's pages if those are smaller. */
Test(page, a_window_shows_the_bytes_of_the_file)
{
    const off_t offset = 13 * 4096;
    int fd = memfd_create("window", MFD_CLOEXEC);
    cr_assert_eq(ftruncate(fd, offset + SEALS_BYTES), 0);
    cr_assert_eq(pwrite(fd, "seal", 4, offset), 4);
    for (size_t i = 0; i < sizeof(page_sizes) / sizeof(page_sizes[0]); i++) {
        if (page_sizes[i] < (size_t)sysconf(_SC_PAGESIZE)) {
            continue;
        }
        struct page_window w = page_window_of((uint64_t)offset, SEALS_BYTES, page_sizes[i]);
        uint8_t *base = mmap(NULL, w.bytes, PROT_READ, MAP_SHARED, fd, (off_t)w.offset);
        cr_assert_neq((void *)base, MAP_FAILED);
        cr_assert_eq(memcmp(base + w.skip, "seal", 4), 0);
        munmap(base, w.bytes);
    }
    close(fd);
}
