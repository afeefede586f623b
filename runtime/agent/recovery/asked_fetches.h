/* SPDX-License-Identifier: Apache-2.0
 * The fetches that a recovery has requested and that have no outcome yet. Pure. */
#ifndef TCK_AGENT_ASKED_FETCHES_H
#define TCK_AGENT_ASKED_FETCHES_H

#include "recovery/recovery.h"

struct asked_fetch {
    uint64_t number; /* of the request */
    struct recovery_action action;
};

/* Empty if zeroed. Sorted by number: each request has a higher one than those before it. */
struct asked_fetches {
    uint32_t count, cap, over; /* over: those of them that have an outcome, until they are removed together */
    struct asked_fetch *items; /* owned */
    bool *has_outcome;         /* owned, beside items */
};

/* Its number must be above all others. False: out of memory. */
must_check bool asked_add(struct asked_fetches *asked, const struct asked_fetch *fetch);
/* True if this request to this node had no outcome yet; now it has. */
bool asked_take(struct asked_fetches *asked, uint64_t number, uint32_t node);
/* The newest one without an outcome whose number is below this one; false if there is none. */
bool asked_before(const struct asked_fetches *asked, uint64_t number, struct asked_fetch *out);
void asked_free(struct asked_fetches *asked);

#endif
