/* SPDX-License-Identifier: Apache-2.0
 * See same_chunks.h. */
#include "base/same_chunks.h"

#include <string.h>

bool same_chunks_possible(const struct digested *a, const struct digested *b, uint64_t image_bytes)
{
    uint32_t count = chunk_count(image_bytes);
    for (uint32_t i = 0; i < count; i++) {
        if (a->crcs[i] == b->crcs[i]) {
            return true;
        }
    }
    return false;
}

static bool is_same(const struct digested *a, const struct digested *b, uint64_t image_bytes, uint32_t i)
{
    uint64_t at = (uint64_t)i * CHUNK_BYTES;
    return memcmp(a->image + at, b->image + at, chunk_size(image_bytes, i)) == 0;
}

uint64_t same_chunks(const struct digested *a, const struct digested *b, uint64_t image_bytes, uint32_t first,
                     uint32_t count, uint8_t *bits)
{
    uint32_t total = chunk_count(image_bytes);
    uint32_t end = count < total - first ? first + count : total;
    uint64_t bytes = 0;
    for (uint32_t i = first; i < end; i++) {
        if (a->crcs[i] == b->crcs[i] && is_same(a, b, image_bytes, i)) {
            bit_set(bits, i);
            bytes += chunk_size(image_bytes, i);
        }
    }
    return bytes;
}
