/* SPDX-License-Identifier: Apache-2.0
 * How much more memory this process may use before the kernel kills a process. The memory tier checks it before it
 * allocates, and the agent watches it. */
#ifndef TCK_TIERS_MEMORY_LIMITS_H
#define TCK_TIERS_MEMORY_LIMITS_H

#include "base/status.h"
#include "core/memory_level.h"

#include <limits.h>
#include <stdbool.h>

#define MEMORY_OF_BYTES 256

/* TCK_ERR_NOSPC, naming both numbers, if the machine or one of this process's cgroups cannot spare `wanted` bytes while
 * keeping 5 % of what is available now. */
must_check tck_status_t memory_can_spare(uint64_t wanted, struct error *err);

/* What the machine and this process's cgroups report, and which of them has least left. root is put before all paths:
 * "" but in tests. What cannot be read is no limit. */
struct memory_figures memory_figures_read(const char *root, char of[MEMORY_OF_BYTES]);

/* The directory of this process's cgroup of version 2; false if it has none. */
bool memory_own_group(const char *root, char dir[PATH_MAX]);

/* Unused bytes in the 2 MiB pages that are reserved for hugetlb. */
uint64_t memory_hugetlb_free(void);

#endif
