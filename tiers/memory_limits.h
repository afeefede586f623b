/* SPDX-License-Identifier: Apache-2.0
 * How much more memory this process may use before the kernel kills a process. The memory tier checks it. */
#ifndef TCK_TIERS_MEMORY_LIMITS_H
#define TCK_TIERS_MEMORY_LIMITS_H

#include "base/status.h"

/* TCK_ERR_NOSPC, naming both numbers, if the machine or one of this process's cgroups cannot spare `wanted` bytes while
 * keeping 5 % of what is available now. */
must_check tck_status_t memory_can_spare(uint64_t wanted, struct error *err);

/* Unused bytes in the 2 MiB pages that are reserved for hugetlb. */
uint64_t memory_hugetlb_free(void);

#endif
