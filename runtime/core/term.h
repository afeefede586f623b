/* SPDX-License-Identifier: Apache-2.0
 * Fencing: which term an agent serves. Adopting a term closes all older ones permanently. */
#ifndef TCK_CORE_TERM_H
#define TCK_CORE_TERM_H

#include "core/protocol.h"

struct term_state {
    uint64_t adopted; /* highest term that it knows: everything older is refused */
    uint64_t joined;  /* term whose world this agent is part of; 0 or < adopted: it only sends copies to others */
};

enum term_verdict {
    TERM_CURRENT, /* of the joined term */
    TERM_STALE,   /* older: drop it, count it, tell the sender the adopted term */
    TERM_NEWER,   /* newer: adopt it first (term_adopt), then handle it as a member or giver */
    TERM_GIVER,   /* of the adopted term, which this agent has not joined: only inventories and pulls */
};

enum term_verdict term_judge(const struct term_state *t, uint64_t term);
/* True if it was newer and is now adopted. */
bool term_adopt(struct term_state *t, uint64_t term);
/* The ranks of this node have formed this term. False if a newer one was adopted already. */
bool term_join(struct term_state *t, uint64_t term);

#endif
