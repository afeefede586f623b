/* SPDX-License-Identifier: Apache-2.0
 * The seal that a trainer leaves beside a slot when it has copied everything: in memory that outlives both it and the
 * agent, so that what was sealed is known to be whole, whoever dies next. The seals of a segment fill one page. */
#ifndef TCK_BASE_SEAL_H
#define TCK_BASE_SEAL_H

#include "base/version.h"
#include <stdatomic.h>

#define SEALS_BYTES 4096

struct seal {
    _Atomic uint64_t check; /* of the two below; 0: none */
    _Atomic uint64_t term, step;
    uint64_t reserved[5];
};

/* A writer that dies at any instruction leaves a seal that is whole or plainly none. */
void seal_set(struct seal *seal, struct version version);
void seal_clear(struct seal *seal);
/* VERSION_NONE if there is none, or anything but a whole one. */
struct version seal_read(struct seal *seal);

#endif
