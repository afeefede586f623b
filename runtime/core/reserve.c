/* SPDX-License-Identifier: Apache-2.0
 * The reservation of terms. */
#include "core/reserve.h"

/* In a term that was granted to this agent, nothing is committed without a decision that was kept here before. That
 * decision may name a version of an older term: a base that this term has restored, and may have published. */
uint64_t reserve_newest_saved(const struct reserve_terms *terms)
{
    bool ours = terms->claimed == terms->joined;
    return ours || terms->committed > terms->joined ? terms->committed : terms->joined;
}

bool reserve_claimed_by(const struct reserve_terms *terms, uint64_t term, uint32_t pid)
{
    return term != 0 && term == terms->claimed && pid != 0 && pid == terms->claimed_pid;
}

bool reserve_has(const struct reserve *r, uint64_t term)
{
    return r->first != 0 && r->first <= term && term <= r->last;
}

static bool gave(const struct reserve *r, uint64_t to, uint64_t at_least)
{
    return r->given.term != 0 && r->given.to == to && r->given.term >= at_least;
}

uint64_t reserve_offer(const struct reserve *r, uint64_t to, uint64_t at_least)
{
    uint64_t term = r->first > at_least ? r->first : at_least;
    if (gave(r, to, at_least)) {
        return r->given.term;
    }
    return reserve_has(r, term) ? term : 0;
}

struct grant reserve_give(struct reserve *r, const struct reserve_terms *terms, const struct reserve_ask *ask)
{
    struct grant grant = {.to = ask->to, .last = r->last, .follows = r->follows};
    uint64_t saved = reserve_newest_saved(terms);
    if (terms->granting > terms->adopted) {
        return grant;
    }
    if (gave(r, ask->to, ask->at_least)) {
        return r->given;
    }
    if (saved > grant.follows) {
        grant.follows = saved;
    }
    if (terms->adopted == ask->adopted) {
        grant.term = reserve_offer(r, ask->to, ask->at_least);
    }
    if (grant.term != 0) {
        *r = (struct reserve){.follows = r->follows, .given = grant};
    }
    return grant;
}

bool reserve_may_take(const struct reserve_terms *terms, uint64_t term, uint64_t at_least, uint32_t pid)
{
    bool is_new = term > terms->claimed || reserve_claimed_by(terms, term, pid);
    return term >= at_least && term >= terms->adopted && is_new && terms->granting <= terms->adopted;
}

void reserve_take(struct reserve *r, const struct grant *grant)
{
    bool more = grant->term < grant->last;
    r->first = more ? grant->term + 1 : 0;
    r->last = more ? grant->last : 0;
    r->follows = grant->follows;
    r->given = (struct grant){0};
}

void reserve_adopted(struct reserve *r, uint64_t term)
{
    if (r->first != 0 && term >= r->first) {
        r->first = r->last = 0;
    }
    if (term > r->given.term) {
        r->given = (struct grant){0};
    }
}

/* `follows` is what the grant said; the commit may be a later one. */
uint64_t reserve_unused(const struct reserve *r, const struct reserve_terms *terms, uint64_t term)
{
    uint64_t saved = r->follows > terms->committed ? r->follows : terms->committed;
    bool granted = terms->claimed == term && r->follows != 0 && saved < term;
    return granted ? term - saved - 1 : 0;
}

bool reserve_missing(const struct reserve *r, uint64_t term, uint64_t *first_out, uint64_t *last_out)
{
    uint64_t have = r->first != 0 ? r->last - r->first + 1 : 0;
    uint64_t first = r->first != 0 ? r->last + 1 : term + 1;
    if (have >= RESERVE_COUNT || first > UINT64_MAX - RESERVE_COUNT) {
        return false;
    }
    *first_out = first;
    *last_out = first + (RESERVE_COUNT - have) - 1;
    return true;
}

/* They belong to the term that is still in use, or directly follow the rest of the reservation. */
bool reserve_may_add(const struct reserve *r, const struct reserve_terms *terms, uint64_t by, uint64_t first)
{
    return terms->adopted == by || (r->first != 0 && first == r->last + 1);
}

void reserve_add(struct reserve *r, uint64_t first, uint64_t last)
{
    bool follows = r->first != 0 && first == r->last + 1;
    r->first = follows ? r->first : first;
    r->last = last;
    r->given =
        (struct grant){0}; /* this agent still serves the term before it, so no other agent knows of that grant */
}

uint32_t reserve_choose(const struct reserve_answer *answers, uint32_t count, uint64_t newest)
{
    uint32_t chosen = UINT32_MAX;
    uint64_t offer = 0;
    for (uint32_t i = 0; i < count; i++) {
        newest = answers[i].adopted > newest ? answers[i].adopted : newest;
        if (answers[i].offer > offer) {
            offer = answers[i].offer;
            chosen = i;
        }
    }
    return offer > newest ? chosen : UINT32_MAX;
}
