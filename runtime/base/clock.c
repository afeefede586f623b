/* SPDX-License-Identifier: Apache-2.0
 * Time from the kernel's clocks. */
#include "base/clock.h"

#include <time.h>

#define NS_PER_S  1000000000u
#define NS_PER_MS 1000000u
#define NS_PER_US 1000u

/* clock_gettime cannot fail for the clocks used here. */
static uint64_t read_clock(clockid_t id)
{
    struct timespec now;

    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_ms(void)
{
    return clock_ns() / NS_PER_MS;
}

uint64_t clock_wall_ms(void)
{
    return read_clock(CLOCK_REALTIME) / NS_PER_MS;
}

uint64_t clock_wall_us(void)
{
    return read_clock(CLOCK_REALTIME) / NS_PER_US;
}

uint64_t clock_thread_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}
