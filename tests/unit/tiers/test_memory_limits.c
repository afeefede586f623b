/* SPDX-License-Identifier: Apache-2.0
 * What the kernel's files say about memory that is left, read from a directory with files as the kernel writes them. */
#include "tiers/memory_watch.h"

#include "base/loop.h"
#include "fake_root.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

static char of[MEMORY_OF_BYTES];

static void machine(void)
{
    fake_root_make();
    fake_root_put("/proc/meminfo", "MemTotal:       65536 kB\nMemFree:          100 kB\nMemAvailable:   32768 kB\n");
}

TestSuite(memory_limits, .init = machine, .fini = fake_root_drop);

static void number(const char *name, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof(text), "%" PRIu64 "\n", value);
    fake_root_put(name, text);
}

static void group_of_version_2(void)
{
    fake_root_put("/proc/self/cgroup", "1:name=other:/elsewhere\n0::/pods/job\n");
    number("/sys/fs/cgroup/pods/job/memory.max", 40 * MIB);
    fake_root_put("/sys/fs/cgroup/pods/job/memory.high", "max\n");
    number("/sys/fs/cgroup/pods/job/memory.current", 30 * MIB);
    fake_root_put("/sys/fs/cgroup/pods/job/memory.stat", "anon 1\ninactive_file 4194304\n");
    fake_root_put("/sys/fs/cgroup/pods/job/memory.events", "low 9\nhigh 2\nmax 3\noom 1\noom_kill 7\n");
}

Test(memory_limits, the_machine_without_control_groups)
{
    struct memory_figures f = memory_figures_read(fake_root, of);
    cr_assert_eq(f.available_bytes, 32 * MIB);
    cr_assert_eq(f.total_bytes, 64 * MIB);
    cr_assert_str_eq(of, "this machine");
}

Test(memory_limits, a_group_that_has_less_left_counts_its_page_cache_as_available)
{
    group_of_version_2();
    struct memory_figures f = memory_figures_read(fake_root, of);
    cr_assert_eq(f.available_bytes, 14 * MIB);
    cr_assert_eq(f.total_bytes, 40 * MIB);
    cr_assert_str_eq(of, "cgroup /sys/fs/cgroup/pods/job");
    cr_assert_eq(f.stalls, 5);
    cr_assert_eq(f.failures, 1);
}

/* A training that reads its data again and again has most of its page cache in use. */
Test(memory_limits, page_cache_in_use_and_reclaimable_kernel_memory_are_available_too)
{
    group_of_version_2();
    fake_root_put("/sys/fs/cgroup/pods/job/memory.stat",
                  "anon 1048576\nfile 99999999\nshmem 2097152\ninactive_file 1048576\n"
                  "active_file 8388608\nslab_reclaimable 2097152\nslab 3145728\n");
    cr_assert_eq(memory_figures_read(fake_root, of).available_bytes, 21 * MIB);
}

Test(memory_limits, a_group_above_counts_too_but_not_its_events)
{
    group_of_version_2();
    number("/sys/fs/cgroup/pods/memory.max", 50 * MIB);
    number("/sys/fs/cgroup/pods/memory.current", 49 * MIB);
    fake_root_put("/sys/fs/cgroup/pods/memory.events", "high 100\nmax 100\noom 100\n");
    struct memory_figures f = memory_figures_read(fake_root, of);
    cr_assert_eq(f.available_bytes, 1 * MIB);
    cr_assert_str_eq(of, "cgroup /sys/fs/cgroup/pods");
    cr_assert_eq(f.failures, 1);
}

Test(memory_limits, memory_high_is_a_limit)
{
    group_of_version_2();
    number("/sys/fs/cgroup/pods/job/memory.high", 31 * MIB);
    cr_assert_eq(memory_figures_read(fake_root, of).available_bytes, 5 * MIB);
}

Test(memory_limits, a_group_above_its_limit_has_nothing_left)
{
    group_of_version_2();
    number("/sys/fs/cgroup/pods/job/memory.high", 20 * MIB);
    cr_assert_eq(memory_figures_read(fake_root, of).available_bytes, 0);
}

Test(memory_limits, a_group_of_version_1)
{
    fake_root_put("/proc/self/cgroup", "4:memory:/job\n3:cpu:/\n0::/\n");
    number("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", 20 * MIB);
    number("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", 18 * MIB);
    fake_root_put("/sys/fs/cgroup/memory/job/memory.stat",
                  "inactive_file 0\nactive_file 0\ntotal_inactive_file 524288\ntotal_active_file 524288\n");
    number("/sys/fs/cgroup/memory/job/memory.failcnt", 6);
    struct memory_figures f = memory_figures_read(fake_root, of);
    cr_assert_eq(f.available_bytes, 3 * MIB);
    cr_assert_eq(f.stalls, 6);
}

Test(memory_limits, what_cannot_be_read_is_no_limit)
{
    group_of_version_2();
    fake_root_put("/sys/fs/cgroup/pods/job/memory.current", "");
    cr_assert_eq(memory_figures_read(fake_root, of).available_bytes, 32 * MIB);
}

Test(memory_limits, the_own_group_is_found_for_its_notices)
{
    char dir[PATH_MAX], expected[PATH_MAX];
    cr_assert_not(memory_own_group(fake_root, dir));
    group_of_version_2();
    cr_assert(memory_own_group(fake_root, dir));
    snprintf(expected, sizeof(expected), "%s/sys/fs/cgroup/pods/job", fake_root);
    cr_assert_str_eq(dir, expected);
}

static void ignore(void *ctx)
{
    (void)ctx;
}

Test(memory_limits, a_kernel_without_notices_of_pressure_is_watched_all_the_same)
{
    struct error err;
    struct loop *loop;
    struct memory_watch *watch;
    cr_assert_eq(loop_new(&loop, &err), TCK_OK);
    const struct memory_watch_setup setup = {.loop = loop, .root = fake_root, .stalled = ignore};
    cr_assert_eq(memory_watch_new(&setup, &watch, &err), TCK_OK);
    cr_assert_eq(memory_watch_read(watch, of).available_bytes, 32 * MIB);
    memory_watch_free(watch);
    loop_free(loop);
}
