/* SPDX-License-Identifier: Apache-2.0
 * A process that has used up its group's quota is stopped, with all its threads, until the next period begins. So
 * threads beyond the quota gain nothing, and they keep the event loop from answering. Version 2 of control groups has
 * quota and period in one file, version 1 in two. */
#include "base/processors.h"

#include "base/cgroup.h"
#include "base/cpus.h"

#include <stdio.h>
#include <unistd.h>

#define LINE_BYTES 64

typedef uint32_t quota_fn(const char *dir);

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Rounded down, so that there are no threads beyond the quota; at least 1. */
static uint32_t whole(long long quota_us, long long period_us)
{
    if (quota_us <= 0 || period_us <= 0) {
        return UINT32_MAX; /* -1 in version 1: none */
    }
    long long processors = quota_us / period_us;
    return processors < 1 ? 1 : processors < UINT32_MAX ? (uint32_t)processors : UINT32_MAX;
}

static uint32_t quota_of_version_2(const char *dir)
{
    char line[LINE_BYTES];
    long long quota_us, period_us;
    bool read = cgroup_line(dir, "cpu.max", line, sizeof(line));
    bool limited = read && sscanf(line, "%lld %lld", &quota_us, &period_us) == 2; /* "max 100000": none */
    return limited ? whole(quota_us, period_us) : UINT32_MAX;
}

static bool number(const char *dir, const char *name, long long *out)
{
    char line[LINE_BYTES];
    return cgroup_line(dir, name, line, sizeof(line)) && sscanf(line, "%lld", out) == 1;
}

static uint32_t quota_of_version_1(const char *dir)
{
    long long quota_us, period_us;
    bool known = number(dir, "cpu.cfs_quota_us", &quota_us) && number(dir, "cpu.cfs_period_us", &period_us);
    return known ? whole(quota_us, period_us) : UINT32_MAX;
}

/* A quota holds for all groups below it, too. */
static uint32_t least_quota(const struct cgroup_tree *tree, quota_fn *quota_of)
{
    char dir[PATH_MAX];
    uint32_t found = UINT32_MAX;
    for (bool more = cgroup_own(tree, dir); more; more = cgroup_around(tree, dir)) {
        found = least(found, quota_of(dir));
    }
    return found;
}

static uint32_t bound_to(void)
{
    struct cpus bound = cpus_of_process(0);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return !cpus_is_none(&bound) ? cpus_count(&bound) : online > 0 ? (uint32_t)online : 1;
}

uint32_t processors_quota(const char *root)
{
    const struct cgroup_tree version_1 = {.root = root, .controller = "cpu", .mount = CGROUP_MOUNT "/cpu"};
    const struct cgroup_tree version_2 = {.root = root, .controller = "", .mount = CGROUP_MOUNT};
    return least(least_quota(&version_1, quota_of_version_1), least_quota(&version_2, quota_of_version_2));
}

uint32_t processors_usable(const char *root)
{
    return least(bound_to(), processors_quota(root));
}
