/* SPDX-License-Identifier: Apache-2.0
 * How many processors this process may keep busy. */
#ifndef TCK_BASE_PROCESSORS_H
#define TCK_BASE_PROCESSORS_H

#include <stdint.h>

/* Those that the quotas of this process's control groups are enough for, at least 1; UINT32_MAX: there is none, or it
 * cannot be read. root is put before the paths of groups: "" but in tests. */
uint32_t processors_quota(const char *root);
/* Those that the calling thread is bound to, or fewer if one of this process's control groups has a quota for less; at
 * least 1. */
uint32_t processors_usable(const char *root);

#endif
