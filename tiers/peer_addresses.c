/* SPDX-License-Identifier: Apache-2.0
 * The order in which a node's addresses are tried. */
#include "tiers/peer_addresses.h"

#define DOUBLINGS_MAX 16

uint32_t addresses_limit_ms(const struct peer_addresses *a, uint32_t timeout_ms, uint32_t round_ms)
{
    uint64_t share_ms = a->count > 1 ? round_ms / a->count : timeout_ms;

    share_ms <<= a->rounds < DOUBLINGS_MAX ? a->rounds : DOUBLINGS_MAX;
    return share_ms < timeout_ms ? (uint32_t)share_ms : timeout_ms;
}

/* True if x comes before y. */
static bool is_before(const struct peer_address *x, const struct peer_address *y)
{
    if (x->failed != y->failed) {
        return y->failed;
    }
    return x->failed && x->tried_ms < y->tried_ms;
}

uint32_t addresses_next(const struct peer_addresses *a)
{
    uint32_t best = ADDRESS_NONE;

    for (uint32_t i = 0; i < a->count; i++) {
        if (!a->of[i].tried && (best == ADDRESS_NONE || is_before(&a->of[i], &a->of[best]))) {
            best = i;
        }
    }
    return best;
}

static void begin_round(struct peer_addresses *a, uint32_t rounds)
{
    a->rounds = rounds;
    for (uint32_t i = 0; i < a->count; i++) {
        a->of[i].tried = false;
        a->of[i].begun_ms = 0;
    }
}

void addresses_new_round(struct peer_addresses *a)
{
    begin_round(a, a->rounds < UINT32_MAX ? a->rounds + 1 : a->rounds);
}

void addresses_first_round(struct peer_addresses *a)
{
    begin_round(a, 0);
}

void addresses_forget(struct peer_addresses *a)
{
    *a = (struct peer_addresses){.count = a->count, .in_use = ADDRESS_NONE};
}

void addresses_try(struct peer_addresses *a, uint32_t i, uint64_t now_ms)
{
    a->of[i].tried_ms = now_ms;
    if (a->of[i].begun_ms == 0) {
        a->of[i].begun_ms = now_ms;
    }
}

void addresses_refused(struct peer_addresses *a, uint32_t i, uint64_t now_ms, uint32_t limit_ms)
{
    a->of[i].tried = a->count == 1 || a->rounds > 0 || now_ms >= a->of[i].begun_ms + limit_ms;
}

static bool note(struct peer_address *address, bool failed, uint64_t now_ms)
{
    bool news = address->failed != failed;

    if (news || address->since_ms == 0) {
        address->since_ms = now_ms;
    }
    address->failed = failed;
    address->tried_ms = now_ms;
    return news;
}

bool addresses_failed(struct peer_addresses *a, uint32_t i, uint64_t now_ms)
{
    a->of[i].tried = true;
    return note(&a->of[i], true, now_ms);
}

bool addresses_answered(struct peer_addresses *a, uint32_t i, uint64_t now_ms)
{
    return note(&a->of[i], false, now_ms);
}

uint32_t addresses_to_check(const struct peer_addresses *a, uint64_t now_ms)
{
    uint32_t due = ADDRESS_NONE;

    for (uint32_t i = 0; i < a->count && a->in_use != ADDRESS_NONE; i++) {
        bool is_due = i != a->in_use && (a->of[i].tried_ms == 0 || now_ms >= a->of[i].tried_ms + ADDRESS_CHECK_MS);
        if (is_due && (due == ADDRESS_NONE || a->of[i].tried_ms < a->of[due].tried_ms)) {
            due = i;
        }
    }
    return due;
}

uint32_t addresses_better(const struct peer_addresses *a, uint64_t now_ms)
{
    for (uint32_t i = 0; a->in_use != ADDRESS_NONE && i < a->in_use; i++) {
        const struct peer_address *address = &a->of[i];
        if (!address->failed && address->since_ms != 0 && now_ms >= address->since_ms + ADDRESS_HEALTHY_MS) {
            return i;
        }
    }
    return ADDRESS_NONE;
}
