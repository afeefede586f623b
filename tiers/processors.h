/* SPDX-License-Identifier: Apache-2.0
 * How many processors this process may keep busy. */
#ifndef TCK_TIERS_PROCESSORS_H
#define TCK_TIERS_PROCESSORS_H

#include <stdint.h>

/* Those that the calling thread is bound to, or fewer if one of this process's control groups has a quota for less; at
 * least 1. What cannot be read is no limit. root is put before the paths of groups: "" but in tests. */
uint32_t processors_usable(const char *root);

#endif
