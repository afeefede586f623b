/* SPDX-License-Identifier: Apache-2.0
 * Fencing by term number. */
#include "core/term.h"

enum term_verdict term_judge(const struct term_state *t, uint64_t term)
{
    if (term < t->adopted) {
        return TERM_STALE;
    }
    if (term > t->adopted) {
        return TERM_NEWER;
    }
    return t->joined == t->adopted ? TERM_CURRENT : TERM_GIVER;
}

bool term_adopt(struct term_state *t, uint64_t term)
{
    if (term <= t->adopted) {
        return false;
    }
    t->adopted = term;
    return true;
}

bool term_join(struct term_state *t, uint64_t term)
{
    if (term < t->adopted || term < t->joined) {
        return false;
    }
    t->adopted = term;
    t->joined = term;
    return true;
}
