/* SPDX-License-Identifier: Apache-2.0
 * How many threads of a rank copy, if that is not configured. Pure. */
#ifndef TCK_CLIENT_RANK_PROCESSORS_H
#define TCK_CLIENT_RANK_PROCESSORS_H

#include "client/slot_copy.h"

/* What a rank shares with the others of its node, and what is its own. */
struct rank_processors {
    uint32_t bound;  /* processors that this rank is bound to; 0: that is not known */
    uint32_t online; /* of the node */
    uint32_t quota;  /* for how many its control groups allow, or UINT32_MAX */
    uint32_t ranks;  /* of the node, at least 1 */
};

struct copy_threads copy_threads_for(const struct rank_processors *rank);

#endif
