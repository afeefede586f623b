/* SPDX-License-Identifier: Apache-2.0
 * Files divided into parts: every byte is in one part, within the limits of servers. */
#include "base/digest.h"
#include "tiers/object_parts.h"

#include <criterion/criterion.h>

#define PART_MIN   (UINT64_C(5) << 20)
#define COUNT_MOST 10000u

static void check(uint64_t bytes)
{
    const struct object_parts parts = object_parts_of(bytes);
    uint64_t end = 0;
    uint32_t chunk = 0;
    cr_assert(parts.count > 0 && parts.count <= COUNT_MOST);
    for (uint32_t i = 0; i < parts.count; i++) {
        const struct object_slice slice = object_parts_slice(&parts, i);
        cr_assert_eq(slice.begin, end);
        cr_assert_eq(slice.first, chunk);
        cr_assert(slice.chunks > 0 && slice.bytes > 0);
        cr_assert(slice.bytes >= PART_MIN || i + 1 == parts.count);
        end += slice.bytes;
        chunk += slice.chunks;
    }
    cr_assert_eq(end, bytes);
    cr_assert_eq(chunk, chunk_count(bytes));
}

Test(object_parts, every_byte_is_in_one_part)
{
    const uint64_t part = 4 * (uint64_t)CHUNK_BYTES;
    const uint64_t sizes[] = {1, CHUNK_BYTES, CHUNK_BYTES + 1, part - 1, part, part + 1, 3 * part + 7};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        check(sizes[i]);
    }
    cr_assert_eq(object_parts_of(part).count, 1);
    cr_assert_eq(object_parts_of(part + 1).count, 2);
}

Test(object_parts, a_large_file_has_larger_parts_and_not_more)
{
    const uint64_t part = 4 * (uint64_t)CHUNK_BYTES;
    check(COUNT_MOST * part);
    check(COUNT_MOST * part + 1);
    check(UINT64_C(5) << 40);
}
