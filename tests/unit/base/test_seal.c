/* SPDX-License-Identifier: Apache-2.0
 * A seal is complete or ignored. */
#include "base/seal.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct version version = {3, 120};

Test(seal, says_what_was_sealed)
{
    struct seal seal = {0};
    cr_assert(version_none(seal_read(&seal).version), "memory that nobody has sealed");
    seal_set(&seal, version, NULL);
    cr_assert(version_is(seal_read(&seal).version, version));
    seal_set(&seal, (struct version){3, 121}, NULL);
    cr_assert_eq(seal_read(&seal).version.step, 121);
    seal_clear(&seal);
    cr_assert(version_none(seal_read(&seal).version));
}

Test(seal, says_the_root_too_if_it_was_given_one)
{
    static const struct hash128 root = {.hi = 5, .lo = 6};
    struct seal seal = {0};
    seal_set(&seal, version, &root);
    cr_assert(version_is(seal_read(&seal).version, version));
    cr_assert(seal_read(&seal).has_root);
    cr_assert(hash128_is(seal_read(&seal).root, root));
    seal_set(&seal, version, NULL);
    cr_assert(version_is(seal_read(&seal).version, version));
    cr_assert_not(seal_read(&seal).has_root);
}

static void check_flips(const struct seal *seal, size_t bytes)
{
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        struct seal torn;
        memcpy((void *)&torn, (const void *)seal, sizeof(torn));
        ((uint8_t *)&torn)[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_assert(version_none(seal_read(&torn).version), "bit %zu", bit);
    }
}

Test(seal, is_none_with_any_bit_flipped)
{
    static const struct hash128 root = {.hi = 5, .lo = 6};
    struct seal seal = {0};
    seal_set(&seal, version, NULL);
    check_flips(&seal, 3 * sizeof(uint64_t));
    seal_set(&seal, version, &root);
    check_flips(&seal, 5 * sizeof(uint64_t));
}

Test(seal, of_a_writer_that_died_early_is_none)
{
    struct seal seal = {0};
    seal_set(&seal, version, NULL);
    seal_clear(&seal); /* then it would write the next one */
    atomic_store(&seal.term, 4);
    cr_assert(version_none(seal_read(&seal).version));
    atomic_store(&seal.step, 130);
    cr_assert(version_none(seal_read(&seal).version));
}
