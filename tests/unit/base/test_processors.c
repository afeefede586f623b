/* SPDX-License-Identifier: Apache-2.0
 * What this process may keep busy, by its binding and by files as the kernel writes them. */
#include "base/processors.h"

#include "base/cpus.h"
#include "fake_root.h"

#include <criterion/criterion.h>

#define MANY "999999999999 100000\n" /* more than any machine has */

static uint32_t own;

static void set_up(void)
{
    struct cpus bound = cpus_of_process(0);
    fake_root_make();
    own = cpus_count(&bound);
    cr_assert_gt(own, 0);
}

TestSuite(processors, .init = set_up, .fini = fake_root_drop);

static uint32_t usable(void)
{
    return processors_usable(fake_root);
}

static void group_of_version_2(const char *quota)
{
    fake_root_put("/proc/self/cgroup", "1:name=other:/elsewhere\n0::/pods/job\n");
    fake_root_put("/sys/fs/cgroup/pods/job/cpu.max", quota);
}

static void group_of_version_1(const char *quota_us, const char *period_us)
{
    fake_root_put("/proc/self/cgroup", "5:cpuset:/other\n4:cpuacct,cpu:/job\n0::/\n");
    fake_root_put("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", quota_us);
    fake_root_put("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", period_us);
}

Test(processors, are_those_that_it_is_bound_to_without_groups)
{
    cr_expect_eq(usable(), own);
}

Test(processors, of_a_thread_that_is_bound_to_one_are_one)
{
    struct cpus one = {0}, bound = cpus_of_process(0);
    for (unsigned cpu = 0; cpu < CPUS_MAX && cpus_is_none(&one); cpu++) {
        if (CPU_ISSET_S(cpu, sizeof(bound), bound.sets)) {
            CPU_SET_S(cpu, sizeof(one), one.sets);
        }
    }
    cpus_run_on(&one);
    cr_expect_eq(usable(), 1);
}

Test(processors, are_no_more_than_a_quota_of_version_2)
{
    group_of_version_2("100000 100000\n");
    cr_expect_eq(usable(), 1);
    group_of_version_2(MANY);
    cr_expect_eq(usable(), own);
}

Test(processors, are_no_more_than_a_quota_of_version_1)
{
    group_of_version_1("50000\n", "50000\n");
    cr_expect_eq(usable(), 1);
    group_of_version_1("999999999999\n", "50000\n");
    cr_expect_eq(usable(), own);
}

/* A second thread would use up the quota, and the event loop would be stopped with it. */
Test(processors, of_a_part_of_one_do_not_count)
{
    group_of_version_2("199999 100000\n");
    cr_expect_eq(usable(), 1);
    group_of_version_2("1000 100000\n");
    cr_expect_eq(usable(), 1, "less than one is one");
}

Test(processors, are_no_more_than_the_quota_of_a_group_around_the_own_one)
{
    group_of_version_2("max 100000\n");
    cr_expect_eq(usable(), own);
    fake_root_put("/sys/fs/cgroup/pods/cpu.max", "100000 100000\n");
    cr_expect_eq(usable(), 1);
}

Test(processors, a_container_has_its_own_group_at_the_mount)
{
    fake_root_put("/proc/self/cgroup", "4:cpu,cpuacct:/docker/0123\n");
    fake_root_put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
    fake_root_put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    cr_expect_eq(usable(), 1);
}

Test(processors, of_a_quota_are_those_that_it_is_enough_for)
{
    cr_expect_eq(processors_quota(fake_root), UINT32_MAX);
    group_of_version_2("max 100000\n");
    cr_expect_eq(processors_quota(fake_root), UINT32_MAX);
    group_of_version_2("350000 100000\n");
    cr_expect_eq(processors_quota(fake_root), 3);
    group_of_version_1("1000\n", "50000\n");
    cr_expect_eq(processors_quota(fake_root), 1);
}

Test(processors, no_quota_and_what_cannot_be_read_are_no_limit)
{
    static const char *const texts[] = {"max 100000\n", "",           "\n",         "0 100000\n",
                                        "100000\n",     "100000 0\n", "-1 100000\n"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        group_of_version_2(texts[i]);
        cr_expect_eq(usable(), own, "'%s'", texts[i]);
    }
    group_of_version_1("-1\n", "100000\n");
    cr_expect_eq(usable(), own);
    fake_root_put("/proc/self/cgroup", "nothing of that kind\n::\n4\n");
    cr_expect_eq(usable(), own);
}
