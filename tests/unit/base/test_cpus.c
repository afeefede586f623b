/* SPDX-License-Identifier: Apache-2.0
 * Nodes of other machines than this one, as directories like the kernel's. */
#include "base/cpus.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char nodes[64];

static void make(const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", nodes, name);
    cr_assert_eq(mkdir(path, 0700), 0, "%s: %m", path);
}

/* Two sockets with two processors each, and the memory of a device. */
static void two_sockets(void)
{
    static const char *const names[] = {"node0",   "node0/cpu0",      "node0/cpu2",    "node0/cpulist", "node0/cpufreq",
                                        "node8",   "node8/cpu1",      "node8/cpu3000", "node8/cpumap",  "node8/memory",
                                        "node252", "node252/memory1", "possible",      "nodes",         "node"};
    snprintf(nodes, sizeof(nodes), "/tmp/numa.XXXXXX");
    cr_assert_not_null(mkdtemp(nodes));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        make(names[i]);
    }
}

static void remove_all(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r '%s'", nodes);
    cr_assert_eq(system(command), 0);
}

static struct cpus cpus_of(int count, ...)
{
    struct cpus cpus = {0};
    va_list list;
    va_start(list, count);
    for (int i = 0; i < count; i++) {
        unsigned cpu = va_arg(list, unsigned);
        CPU_SET_S(cpu, sizeof(cpus), cpus.sets);
    }
    va_end(list);
    return cpus;
}

static void expect(struct cpus bound, struct cpus wanted)
{
    struct cpus found = cpus_of_node(nodes, &bound);
    cr_expect(CPU_EQUAL_S(sizeof(found), found.sets, wanted.sets), "%d of %d", CPU_COUNT_S(sizeof(found), found.sets),
              CPU_COUNT_S(sizeof(wanted), wanted.sets));
}

Test(cpus, a_process_bound_to_one_socket_is_on_its_node, .init = two_sockets, .fini = remove_all)
{
    expect(cpus_of(1, 0u), cpus_of(2, 0u, 2u));
    expect(cpus_of(2, 0u, 2u), cpus_of(2, 0u, 2u));
    expect(cpus_of(1, 3000u), cpus_of(2, 1u, 3000u));
}

Test(cpus, a_process_that_may_use_several_sockets_is_on_no_node, .init = two_sockets, .fini = remove_all)
{
    expect(cpus_of(2, 0u, 1u), cpus_of(0));
    expect(cpus_of(4, 0u, 1u, 2u, 3000u), cpus_of(0));
    expect(cpus_of(2, 0u, 7u), cpus_of(0)); /* 7 is on none */
    expect(cpus_of(0), cpus_of(0));
}

Test(cpus, a_machine_with_one_node_with_processors_has_nothing_to_choose, .init = two_sockets, .fini = remove_all)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r '%s/node8'", nodes);
    cr_assert_eq(system(command), 0);
    expect(cpus_of(1, 0u), cpus_of(0));
    make("node8");
    expect(cpus_of(1, 0u), cpus_of(0));
    make("node8/cpu1");
    expect(cpus_of(1, 0u), cpus_of(2, 0u, 2u));
}

Test(cpus, a_process_that_is_not_there_is_bound_to_none)
{
    struct cpus none = cpus_of_process(INT_MAX), own = cpus_of_process(0), both = cpus_of_both(&own, &none);
    cr_expect(cpus_is_none(&none));
    cr_expect_not(cpus_is_none(&own));
    cr_expect(CPU_EQUAL_S(sizeof(own), own.sets, both.sets));
    own = cpus_of(2, 1u, 70u);
    none = cpus_of(2, 2u, 3000u);
    both = cpus_of_both(&own, &none);
    own = cpus_of(4, 1u, 2u, 70u, 3000u);
    cr_expect(CPU_EQUAL_S(sizeof(own), own.sets, both.sets));
}

Test(cpus, nodes_that_cannot_be_read_are_none)
{
    struct cpus bound = cpus_of(1, 0u), found = cpus_of_node("/nowhere", &bound);
    cr_assert(cpus_is_none(&found));
}

/* Of this machine: what it finds has all processors to which this process is bound. */
Test(cpus, the_node_of_a_process_has_its_processors)
{
    struct cpus bound = cpus_of_process(getpid()), found = cpus_of_node(NUMA_NODES, &bound), both;
    CPU_AND_S(sizeof(both), both.sets, found.sets, bound.sets);
    cr_assert(cpus_is_none(&found) || CPU_EQUAL_S(sizeof(both), both.sets, bound.sets));
}

static void *one_cpu_only(void *ctx)
{
    struct cpus now, none = {0}, other = cpus_of(1, CPUS_MAX - 1), *wanted = ctx;
    cpus_run_on(&none);
    cpus_run_on(&other); /* there is no such processor */
    cr_expect(sched_getaffinity(0, sizeof(now), now.sets) >= 0);
    cr_expect_geq(CPU_COUNT_S(sizeof(now), now.sets), 1);
    cpus_run_on(wanted);
    memset(&now, 0, sizeof(now));
    cr_expect_eq(sched_getaffinity(0, sizeof(now), now.sets), 0);
    cr_expect(CPU_EQUAL_S(sizeof(now), now.sets, wanted->sets));
    return NULL;
}

Test(cpus, a_thread_runs_where_it_is_told_and_its_process_does_not_follow)
{
    pthread_t thread;
    struct cpus before = {0}, after = {0}, wanted = {0};
    cr_assert_eq(sched_getaffinity(0, sizeof(before), before.sets), 0);
    for (unsigned cpu = 0; cpus_is_none(&wanted); cpu++) {
        if (CPU_ISSET_S(cpu, sizeof(before), before.sets)) {
            wanted = cpus_of(1, cpu);
        }
    }
    cr_assert_eq(pthread_create(&thread, NULL, one_cpu_only, &wanted), 0);
    pthread_join(thread, NULL);
    cr_assert_eq(sched_getaffinity(0, sizeof(after), after.sets), 0);
    cr_assert(CPU_EQUAL_S(sizeof(after), after.sets, before.sets));
}
