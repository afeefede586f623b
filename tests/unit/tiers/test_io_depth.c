/* SPDX-License-Identifier: Apache-2.0
 * The depth grows where requests take their time anyway, and stays small where they would only wait for each other. */
#include "tiers/io_depth.h"

#include <criterion/criterion.h>

#define LEAST 4
#define MOST  32
#define MS    1000000u

static uint64_t storage_ns(uint64_t fixed_ns, uint64_t each_ns, uint32_t in_flight)
{
    uint64_t busy_ns = each_ns * in_flight;
    return busy_ns > fixed_ns ? busy_ns : fixed_ns;
}

/* As many requests as allowed are in flight all the time, at storage that needs fixed_ns for each and each_ns of its
 * bandwidth. The first one comes back alone. */
static struct io_depth after(uint32_t requests, uint64_t fixed_ns, uint64_t each_ns)
{
    struct io_depth d = io_depth_new(LEAST, MOST);
    io_depth_returned(&d, storage_ns(fixed_ns, each_ns, 1), false);
    for (uint32_t i = 0; i < requests; i++) {
        io_depth_returned(&d, storage_ns(fixed_ns, each_ns, d.now), true);
        cr_assert(d.now >= LEAST && d.now <= MOST);
    }
    return d;
}

Test(io_depth, stays_small_where_requests_wait_for_each_other)
{
    cr_assert_eq(after(1000, 0, 2 * MS).now, LEAST);
}

Test(io_depth, grows_to_the_most_where_requests_only_take_time)
{
    cr_assert_eq(after(100, 20 * MS, 0).now, MOST);
}

/* 20 ms and 2 ms for the bytes of each: ten in flight use all of it. */
Test(io_depth, grows_until_the_bandwidth_is_used)
{
    struct io_depth d = after(1000, 20 * MS, 2 * MS);
    cr_assert(d.now >= 10 && d.now <= 20, "%u", d.now);
}

Test(io_depth, shrinks_again_where_requests_begin_to_wait)
{
    struct io_depth d = after(100, 20 * MS, 0);
    for (uint32_t i = 0; i < 2000; i++) {
        io_depth_returned(&d, storage_ns(20 * MS, 10 * MS, d.now), true);
    }
    cr_assert_eq(d.now, LEAST);
}

Test(io_depth, does_not_grow_while_less_is_in_flight_than_allowed)
{
    struct io_depth d = io_depth_new(LEAST, MOST);
    for (uint32_t i = 0; i < 100; i++) {
        io_depth_returned(&d, 20 * MS, false);
    }
    cr_assert_eq(d.now, LEAST);
}

Test(io_depth, a_pause_forgets_the_quickest_request_and_keeps_the_depth)
{
    struct io_depth d = after(100, 20 * MS, 0);
    io_depth_paused(&d);
    cr_assert_eq(d.quickest_ns, 0);
    cr_assert_eq(d.now, MOST);
}
