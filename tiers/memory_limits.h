/* SPDX-License-Identifier: Apache-2.0
 * How much memory this process may still take before the kernel kills a process. The memory tier checks it. */
#ifndef TCK_TIERS_MEMORY_LIMITS_H
#define TCK_TIERS_MEMORY_LIMITS_H

#include "base/status.h"

/* TCK_ERR_NOSPC, naming both numbers, if the machine or one of this process's cgroups cannot spare `wanted` bytes and
 * keep 5 % of what it has left now. */
must_check tck_status_t memory_can_spare(uint64_t wanted, struct error *err);

/* Bytes in 2 MiB pages that are set aside for hugetlb and not in use. */
uint64_t memory_hugetlb_free(void);

#endif
