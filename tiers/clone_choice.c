/* SPDX-License-Identifier: Apache-2.0
 * See clone_choice.h. */
#include "tiers/clone_choice.h"

#include "base/same_chunks.h"

bool clone_may_share(uint32_t in_a_row, uint32_t one_in)
{
    return one_in > 0 && in_a_row < one_in - 1;
}

bool clone_may_be_same(const struct hashed *image, const struct hashed *base, uint32_t chunk)
{
    return image->image_bytes == base->image_bytes && image->crcs[chunk] == base->crcs[chunk];
}

static bool is_same(const struct hashed *image, const struct hashed *base, uint32_t chunk)
{
    return clone_may_be_same(image, base, chunk) && !hash128_is(image->hashes[chunk], (struct hash128){0, 0}) &&
           hash128_is(image->hashes[chunk], base->hashes[chunk]);
}

uint64_t clone_choose(const struct hashed *image, const struct hashed *base, uint8_t *bits)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < chunk_count(image->image_bytes); i++) {
        if (is_same(image, base, i)) {
            bit_set(bits, i);
            bytes += chunk_size(image->image_bytes, i);
        }
    }
    return bytes;
}

struct chunk_run chunk_run_next(const uint8_t *bits, uint32_t chunks, uint32_t from, bool set)
{
    struct chunk_run run = {.first = from};
    while (run.first < chunks && bit_is_set(bits, run.first) != set) {
        run.first++;
    }
    while (run.first + run.count < chunks && bit_is_set(bits, run.first + run.count) == set) {
        run.count++;
    }
    return run;
}
