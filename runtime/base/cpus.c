/* SPDX-License-Identifier: Apache-2.0
 * The directory of a node, nodeN, has a link cpuM for each of its processors. A node without processors is memory of a
 * device or of an expander. */
#include "base/cpus.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

bool cpus_is_none(const struct cpus *cpus)
{
    return cpus_count(cpus) == 0;
}

uint32_t cpus_count(const struct cpus *cpus)
{
    return (uint32_t)CPU_COUNT_S(sizeof(*cpus), cpus->sets);
}

struct cpus cpus_of_process(pid_t pid)
{
    struct cpus bound = {0};
    if (sched_getaffinity(pid, sizeof(bound), bound.sets) != 0) {
        return (struct cpus){0};
    }
    return bound;
}

struct cpus cpus_of_both(const struct cpus *a, const struct cpus *b)
{
    struct cpus both;
    CPU_OR_S(sizeof(both), both.sets, a->sets, b->sets);
    return both;
}

/* The number in a name such as cpu12. False: the name is another one, such as cpulist. */
static bool parse_number(const char *name, const char *kind, unsigned *out)
{
    size_t len = strlen(kind);
    int end = 0;
    return strncmp(name, kind, len) == 0 && sscanf(name + len, "%u%n", out, &end) == 1 &&
           name[len + (size_t)end] == '\0';
}

static struct cpus read_cpus(int nodes, const char *name)
{
    unsigned cpu;
    struct cpus found = {0};
    int fd = openat(nodes, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *node = fd >= 0 ? fdopendir(fd) : NULL;
    if (node == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return found;
    }
    for (struct dirent *entry = readdir(node); entry != NULL; entry = readdir(node)) {
        if (parse_number(entry->d_name, "cpu", &cpu) && cpu < CPUS_MAX) {
            CPU_SET_S(cpu, sizeof(found), found.sets);
        }
    }
    closedir(node);
    return found;
}

static bool has_all(const struct cpus *cpus, const struct cpus *wanted)
{
    struct cpus both;
    CPU_AND_S(sizeof(both), both.sets, cpus->sets, wanted->sets);
    return CPU_EQUAL_S(sizeof(both), both.sets, wanted->sets);
}

struct cpus cpus_of_node(const char *nodes, const struct cpus *bound)
{
    const struct cpus none = {0};
    struct cpus found = none;
    unsigned number, count = 0;
    DIR *dir = cpus_is_none(bound) ? NULL : opendir(nodes);
    if (dir == NULL) {
        return none;
    }
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (!parse_number(entry->d_name, "node", &number)) {
            continue;
        }
        struct cpus cpus = read_cpus(dirfd(dir), entry->d_name);
        count += !cpus_is_none(&cpus);
        found = has_all(&cpus, bound) ? cpus : found;
    }
    closedir(dir);
    return count > 1 ? found : none;
}

void cpus_run_on(const struct cpus *cpus)
{
    if (!cpus_is_none(cpus)) {
        /* It fails where a cgroup keeps this process on other processors: their memory is then as good as any. */
        (void)sched_setaffinity(0, sizeof(*cpus), cpus->sets);
    }
}

void cpus_use_near_memory(void)
{
    (void)syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0);
}
