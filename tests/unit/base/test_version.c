/* SPDX-License-Identifier: Apache-2.0 */
#include "base/version.h"

#include <criterion/criterion.h>
#include <string.h>

Test(version, term_outweighs_step)
{
    struct version older = {.term = 1, .step = 900}, newer = {.term = 2, .step = 100};

    cr_assert_lt(version_cmp(older, newer), 0);
    cr_assert_gt(version_cmp(newer, older), 0);
    cr_assert(version_is(newer, newer));
    cr_assert_lt(version_cmp(VERSION_NONE, older), 0);
    cr_assert(version_none(VERSION_NONE));
}

Test(version, hash_text_reads_back)
{
    struct hash128 hash = {.hi = 0x0123456789abcdef, .lo = 0xfedcba9876543210}, parsed;
    char text[HASH128_TEXT];

    hash128_text(hash, text);
    cr_assert_str_eq(text, "0123456789abcdeffedcba9876543210");
    cr_assert(hash128_parse(text, &parsed));
    cr_assert(hash128_is(hash, parsed));
}

Test(version, hash_text_is_taken_in_one_form_only)
{
    struct hash128 hash;

    cr_assert_not(hash128_parse("", &hash));
    cr_assert_not(hash128_parse("0123456789abcdeffedcba987654321", &hash), "31 digits");
    cr_assert_not(hash128_parse("0123456789abcdeffedcba98765432100", &hash), "33 digits");
    cr_assert_not(hash128_parse("0123456789ABCDEFfedcba9876543210", &hash), "upper case");
    cr_assert_not(hash128_parse("0x23456789abcdeffedcba9876543210", &hash), "not a digit");
    cr_assert_not(hash128_parse(" 123456789abcdeffedcba9876543210", &hash), "space");
    cr_assert_not(hash128_parse("-123456789abcdeffedcba9876543210", &hash), "sign");
}

Test(version, encodings_read_back)
{
    struct version version = {.term = 3, .step = UINT64_MAX};
    struct hash128 hash = {.hi = 1, .lo = 2};
    struct writer w = writer_new(0);
    struct reader r;

    write_version(&w, version);
    write_hash128(&w, hash);
    r = reader_of(w.data, w.len);
    cr_assert(version_is(read_version(&r), version));
    cr_assert(hash128_is(read_hash128(&r), hash));
    cr_assert(reader_done(&r));
    writer_free(&w);
}
