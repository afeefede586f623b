/* SPDX-License-Identifier: Apache-2.0
 * How many threads of an agent compute digests. */
#include "core/digest_threads.h"

#include <criterion/criterion.h>

Test(digest_threads, are_a_quarter_of_the_processors_of_a_large_machine)
{
    cr_expect_eq(digest_threads(20), 5);
    cr_expect_eq(digest_threads(32), 8);
    cr_expect_eq(digest_threads(63), 15);
}

Test(digest_threads, are_never_more_than_the_processors)
{
    for (uint32_t processors = 1; processors <= 4; processors++) {
        cr_expect_eq(digest_threads(processors), processors);
    }
    cr_expect_eq(digest_threads(0), 1, "there is always one");
}

Test(digest_threads, are_four_where_a_quarter_is_less)
{
    for (uint32_t processors = 4; processors < 20; processors++) {
        cr_expect_eq(digest_threads(processors), 4, "%u processors", processors);
    }
}

Test(digest_threads, are_at_most_sixteen)
{
    cr_expect_eq(digest_threads(64), 16);
    cr_expect_eq(digest_threads(256), 16);
    cr_expect_eq(digest_threads(UINT32_MAX), 16);
}
