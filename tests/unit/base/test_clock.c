/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <criterion/criterion.h>
#include <time.h>

Test(clock, monotonic_time_never_goes_back)
{
    uint64_t before = clock_ns();

    for (int i = 0; i < 1000; i++) {
        uint64_t now = clock_ns();

        cr_assert_leq(before, now);
        before = now;
    }
}

Test(clock, milliseconds_are_those_of_the_nanoseconds)
{
    uint64_t before_ms = clock_ns() / 1000000;
    uint64_t ms = clock_ms();
    uint64_t after_ms = clock_ns() / 1000000;

    cr_assert_leq(before_ms, ms);
    cr_assert_leq(ms, after_ms);
}

Test(clock, wall_time_is_unix_time)
{
    time_t before = time(NULL);
    uint64_t ms = clock_wall_ms();

    cr_assert_geq(ms / 1000, (uint64_t)before);
    cr_assert_leq(ms / 1000, (uint64_t)before + 100);
}
