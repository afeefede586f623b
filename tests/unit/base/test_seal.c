/* SPDX-License-Identifier: Apache-2.0
 * Seals are whole or none. */
#include "base/seal.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct version version = {3, 120};

Test(seal, says_what_was_sealed)
{
    struct seal seal = {0};
    cr_assert(version_none(seal_read(&seal)), "memory that nobody has sealed");
    seal_set(&seal, version);
    cr_assert(version_is(seal_read(&seal), version));
    seal_set(&seal, (struct version){3, 121});
    cr_assert_eq(seal_read(&seal).step, 121);
    seal_clear(&seal);
    cr_assert(version_none(seal_read(&seal)));
}

Test(seal, is_none_with_any_bit_flipped)
{
    struct seal seal = {0};
    uint8_t bytes[3 * sizeof(uint64_t)];
    seal_set(&seal, version);
    for (size_t bit = 0; bit < 8 * sizeof(bytes); bit++) {
        struct seal torn;
        memcpy(bytes, (void *)&seal, sizeof(bytes));
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        memset((void *)&torn, 0, sizeof(torn));
        memcpy((void *)&torn, bytes, sizeof(bytes));
        cr_assert(version_none(seal_read(&torn)), "bit %zu", bit);
    }
}

Test(seal, of_a_writer_that_died_early_is_none)
{
    struct seal seal = {0};
    seal_set(&seal, version);
    seal_clear(&seal); /* then it would write the next one */
    atomic_store(&seal.term, 4);
    cr_assert(version_none(seal_read(&seal)));
    atomic_store(&seal.step, 130);
    cr_assert(version_none(seal_read(&seal)));
}
