/* SPDX-License-Identifier: Apache-2.0
 * How many threads of an agent compute digests, compare and copy. Pure. */
#ifndef TCK_CORE_DIGEST_THREADS_H
#define TCK_CORE_DIGEST_THREADS_H

#include <stdint.h>

/* processors: that the agent may keep busy, at least 1. A quarter of them, because the training needs the rest and the
 * threads run while it does. Where that is less, up to four, so that the shards of a small node do not wait for each
 * other. At most 16, because all of them share the memory's bandwidth with the training. */
uint32_t digest_threads(uint32_t processors);

#endif
