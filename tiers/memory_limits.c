/* SPDX-License-Identifier: Apache-2.0
 * Reads the kernel's figures on free memory. Exceeding a cgroup's limit leads to SIGKILL rather than an errno, so the
 * only way to fail cleanly is to check first, and to notice early when others use what was free. */
#include "tiers/memory_limits.h"

#include "base/cgroup.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HUGETLB_DIR        "/sys/kernel/mm/hugepages/hugepages-2048kB"
#define HUGETLB_PAGE_BYTES ((uint64_t)2048 * 1024)
#define LINE_BYTES         4096
#define MARGIN_DIVISOR     20 /* 5 % */
#define RECLAIMABLE_MAX    3

/* The lowest limit seen so far, and its owner. */
struct available {
    uint64_t bytes, total;
    char of[MEMORY_OF_BYTES];
};

/* One reading. */
struct reading {
    const char *root;
    bool with_high; /* memory.high counts as a limit: above it processes are slowed down until they hardly run */
    struct available least;
    uint64_t stalls, failures; /* of this process's own groups: those above count what others do */
};

/* The files of one version of the cgroup interface. */
struct cgroup_kind {
    const char *controller, *mount;
    const char *limit, *high, *usage;
    const char *reclaimable[RECLAIMABLE_MAX]; /* lines of memory.stat */
    /* A file, and in it the lines that count: */
    const char *events;
    const char *stalls[2];
    const char *failures;
};

static const struct cgroup_kind kinds[] = {
    {.controller = "",
     .mount = CGROUP_MOUNT,
     .limit = "memory.max",
     .high = "memory.high",
     .usage = "memory.current",
     .reclaimable = {"inactive_file", "active_file", "slab_reclaimable"},
     .events = "memory.events",
     .stalls = {"high", "max"},
     .failures = "oom "},
    {.controller = "memory",
     .mount = CGROUP_MOUNT "/memory",
     .limit = "memory.limit_in_bytes",
     .usage = "memory.usage_in_bytes",
     .reclaimable = {"total_inactive_file", "total_active_file"},
     .events = "memory.failcnt",
     .stalls = {""}},
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

static bool number_below(const char *dir, const char *name, const char *key, uint64_t *out)
{
    char path[PATH_MAX];
    int len = snprintf(path, sizeof(path), "%s/%s", dir, name);
    return len > 0 && (size_t)len < sizeof(path) && file_number(path, key, out);
}

/* What a group can drop: also the cache of files that are read again and again, as those of a training's data are.
 * Shared memory is not part of these lines. Read in one pass, because the kernel sums up the whole file for each
 * reading. */
static uint64_t reclaimable_bytes(const struct cgroup_kind *kind, const char *dir)
{
    char path[PATH_MAX], line[LINE_BYTES];
    uint64_t sum = 0, number;
    int len = snprintf(path, sizeof(path), "%s/memory.stat", dir);
    FILE *file = len > 0 && (size_t)len < sizeof(path) ? fopen(path, "re") : NULL;
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        for (size_t i = 0; i < RECLAIMABLE_MAX && kind->reclaimable[i] != NULL; i++) {
            size_t key = strlen(kind->reclaimable[i]);
            bool found = strncmp(line, kind->reclaimable[i], key) == 0 && line[key] == ' ';
            sum += found && parse_number(line + key + 1, &number) ? number : 0;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return sum;
}

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Lowers least to what this one cgroup can spare. Unused page cache counts in its usage but is dropped when needed. */
static void lower_by_cgroup(const struct cgroup_kind *kind, const char *dir, struct reading *r)
{
    uint64_t limit, high, usage;
    if (!number_below(dir, kind->limit, "", &limit) || !number_below(dir, kind->usage, "", &usage)) {
        return; /* a root group has no limit, and a container does not see the groups around it */
    }
    if (r->with_high && kind->high != NULL && number_below(dir, kind->high, "", &high)) {
        limit = high < limit ? high : limit;
    }
    uint64_t left = minus(limit, minus(usage, reclaimable_bytes(kind, dir)));
    if (left < r->least.bytes) {
        r->least.bytes = left;
        r->least.total = limit;
        snprintf(r->least.of, sizeof(r->least.of), "cgroup %.240s", dir + strlen(r->root));
    }
}

static void add_events(const struct cgroup_kind *kind, const char *dir, struct reading *r)
{
    uint64_t count;
    for (size_t i = 0; i < sizeof(kind->stalls) / sizeof(kind->stalls[0]); i++) {
        if (kind->stalls[i] != NULL && number_below(dir, kind->events, kind->stalls[i], &count)) {
            r->stalls += count;
        }
    }
    if (kind->failures != NULL && number_below(dir, kind->events, kind->failures, &count)) {
        r->failures += count;
    }
}

/* A group's limit applies to all groups below it, so this checks the process's group and each one around it. */
static void lower_by_cgroups(const struct cgroup_kind *kind, struct reading *r)
{
    const struct cgroup_tree tree = {.root = r->root, .controller = kind->controller, .mount = kind->mount};
    char dir[PATH_MAX];
    bool more = cgroup_own(&tree, dir);
    if (more) {
        add_events(kind, dir, r);
    }
    for (; more; more = cgroup_around(&tree, dir)) {
        lower_by_cgroup(kind, dir, r);
    }
}

static uint64_t meminfo_bytes(const char *root, const char *key, uint64_t otherwise)
{
    char dir[PATH_MAX];
    uint64_t kib;
    int len = snprintf(dir, sizeof(dir), "%s/proc", root);
    bool known = len > 0 && (size_t)len < sizeof(dir) && number_below(dir, "meminfo", key, &kib);
    return known ? kib * 1024 : otherwise;
}

static void read_now(struct reading *r)
{
    r->least = (struct available){.bytes = meminfo_bytes(r->root, "MemAvailable", UINT64_MAX),
                                  .total = meminfo_bytes(r->root, "MemTotal", 0),
                                  .of = "this machine"};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        lower_by_cgroups(&kinds[i], r);
    }
}

bool memory_own_group(const char *root, char dir[PATH_MAX])
{
    return cgroup_own(&(struct cgroup_tree){.root = root, .controller = kinds[0].controller, .mount = kinds[0].mount},
                      dir);
}

struct memory_figures memory_figures_read(const char *root, char of[MEMORY_OF_BYTES])
{
    struct reading r = {.root = root, .with_high = true};
    read_now(&r);
    snprintf(of, MEMORY_OF_BYTES, "%s", r.least.of);
    return (struct memory_figures){
        .available_bytes = r.least.bytes, .total_bytes = r.least.total, .stalls = r.stalls, .failures = r.failures};
}

tck_status_t memory_can_spare(uint64_t wanted, struct error *err)
{
    struct reading r = {.root = ""};
    read_now(&r);
    if (wanted > r.least.bytes - r.least.bytes / MARGIN_DIVISOR) {
        return error_set(err, TCK_ERR_NOSPC, "%" PRIu64 " bytes wanted, %" PRIu64 " bytes available in %s", wanted,
                         r.least.bytes, r.least.of);
    }
    return TCK_OK;
}

uint64_t memory_hugetlb_free(void)
{
    uint64_t pages;
    return file_number(HUGETLB_DIR "/free_hugepages", "", &pages) ? pages * HUGETLB_PAGE_BYTES : 0;
}
