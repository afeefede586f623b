/* SPDX-License-Identifier: Apache-2.0
 * The seal that a trainer leaves beside a slot when it has copied everything: in memory that outlives both it and the
 * agent, so that what was sealed is known to be whole, whichever process dies next. The seals of a segment fill one
 * page. */
#ifndef TCK_BASE_SEAL_H
#define TCK_BASE_SEAL_H

#include "base/version.h"
#include <stdatomic.h>

#define SEALS_BYTES 4096

struct seal {
    _Atomic uint64_t check; /* of version and, if there is one, root; 0: none */
    _Atomic uint64_t term, step;
    _Atomic uint64_t root_hi, root_lo; /* digest root that the image has to have, made where it came from */
    uint64_t reserved[3];
};

/* What a seal says. */
struct sealed {
    struct version version; /* VERSION_NONE: there is no complete seal */
    bool has_root;
    struct hash128 root;
};

/* A writer that dies at any instruction leaves either a complete seal or, recognisably, none. root may be NULL. */
void seal_set(struct seal *seal, struct version version, const struct hash128 *root);
void seal_clear(struct seal *seal);
struct sealed seal_read(struct seal *seal);

/* At the end of the page: whether the trainer that fills the segment's slots has pinned them for a device. It outlives
 * the trainer, because pages that were pinned must not be replaced by others before they are unpinned. */
enum pin_state { PINS_UNKNOWN, PINS_NONE, PINS_MADE };
void seals_set_pins(struct seal *seals, enum pin_state pins);
enum pin_state seals_pins(struct seal *seals);

#endif
