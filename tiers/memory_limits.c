/* SPDX-License-Identifier: Apache-2.0
 * Reads the kernel's figures on free memory. Exceeding a cgroup's limit leads to SIGKILL rather than an errno, so the
 * only way to fail cleanly is to check first. */
#include "tiers/memory_limits.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HUGETLB_DIR        "/sys/kernel/mm/hugepages/hugepages-2048kB"
#define HUGETLB_PAGE_BYTES ((uint64_t)2048 * 1024)
#define LINE_BYTES         4096 /* enough for a cgroup's path */
#define OF_BYTES           256
#define MARGIN_DIVISOR     20 /* 5 % */

/* The lowest limit seen so far, and its owner. */
struct available {
    uint64_t bytes;
    char of[OF_BYTES];
};

/* The files of one version of the cgroup interface. */
struct cgroup_kind {
    const char *controllers; /* as in this process's line of /proc/self/cgroup */
    const char *mount;
    const char *limit, *usage;
    const char *reclaimable; /* line of memory.stat */
};

static const struct cgroup_kind kinds[] = {
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"},
    {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
};

static bool parse_number(const char *text, uint64_t *out)
{
    char *end;
    if (strncmp(text, "max", 3) == 0) {
        *out = UINT64_MAX;
        return true;
    }
    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0 && end != text;
}

/* The number in the first line that begins with key ("": any line), in the unit of the file. */
static bool file_number(const char *path, const char *key, uint64_t *out)
{
    char line[LINE_BYTES];
    bool found = false;
    FILE *file = fopen(path, "re");
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        size_t len = strlen(key);
        found = strncmp(line, key, len) == 0 && parse_number(line + len + strspn(line + len, ": \t"), out);
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

static bool cgroup_number(const char *dir, const char *name, const char *key, uint64_t *out)
{
    char path[PATH_MAX];
    int len = snprintf(path, sizeof(path), "%s/%s", dir, name);
    return len > 0 && (size_t)len < sizeof(path) && file_number(path, key, out);
}

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Lowers least to what this one cgroup can spare. Unused page cache counts in its usage but is dropped when needed. */
static void lower_by_cgroup(const struct cgroup_kind *kind, const char *dir, struct available *least)
{
    uint64_t limit, usage, cache = 0;
    if (!cgroup_number(dir, kind->limit, "", &limit) || !cgroup_number(dir, kind->usage, "", &usage)) {
        return; /* a root group has no limit, and a container does not see the groups around it */
    }
    (void)cgroup_number(dir, "memory.stat", kind->reclaimable, &cache);
    uint64_t left = minus(limit, minus(usage, cache));
    if (left < least->bytes) {
        least->bytes = left;
        snprintf(least->of, sizeof(least->of), "cgroup %.240s", dir);
    }
}

/* A group's limit applies to all groups below it, so this checks the process's group and each one above. */
static void lower_by_cgroups(const struct cgroup_kind *kind, const char *group, struct available *least)
{
    char dir[PATH_MAX];
    size_t root = strlen(kind->mount);
    int len = snprintf(dir, sizeof(dir), "%s%s", kind->mount, group);
    if (len < 0 || (size_t)len >= sizeof(dir)) {
        return;
    }
    for (;;) {
        lower_by_cgroup(kind, dir, least);
        char *slash = strrchr(dir + root, '/');
        if (slash == NULL) {
            return;
        }
        *slash = '\0';
    }
}

/* line is "<number>:<controllers>:<path of the group>". */
static void lower_by_line(char *line, struct available *least)
{
    line[strcspn(line, "\n")] = '\0';
    (void)strsep(&line, ":");
    const char *controllers = strsep(&line, ":");
    for (size_t i = 0; line != NULL && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(controllers, kinds[i].controllers) == 0) {
            lower_by_cgroups(&kinds[i], line, least);
        }
    }
}

static struct available available_now(void)
{
    char line[LINE_BYTES];
    uint64_t kib;
    struct available least = {.bytes = UINT64_MAX, .of = "this machine"};
    if (file_number("/proc/meminfo", "MemAvailable", &kib)) {
        least.bytes = kib * 1024;
    }
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        lower_by_line(line, &least);
    }
    if (file != NULL) {
        fclose(file);
    }
    return least;
}

tck_status_t memory_can_spare(uint64_t wanted, struct error *err)
{
    struct available now = available_now();
    if (wanted > now.bytes - now.bytes / MARGIN_DIVISOR) {
        return error_set(err, TCK_ERR_NOSPC, "%" PRIu64 " bytes wanted, %" PRIu64 " bytes available in %s", wanted,
                         now.bytes, now.of);
    }
    return TCK_OK;
}

uint64_t memory_hugetlb_free(void)
{
    uint64_t pages;
    return file_number(HUGETLB_DIR "/free_hugepages", "", &pages) ? pages * HUGETLB_PAGE_BYTES : 0;
}
