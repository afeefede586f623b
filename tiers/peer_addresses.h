/* SPDX-License-Identifier: Apache-2.0
 * Which of a node's addresses a session is opened at, and for how long each is tried. Pure.
 *
 * A round tries every address: first those that are not known to fail, in the node's order, then the others,
 * beginning with the one that was tried longest ago. Between the addresses of a round there is no pause. The first
 * round is over before the node counts as lost, so one address that answers is enough to keep it; each later one gives
 * every address more time, in case the node is only slow.
 *
 * In the first round, an address that refuses a connection is tried again for as long as one that gives no answer, and
 * it does not count as failing: most likely the agent has died and is being restarted, and the others refuse as well.
 */
#ifndef TCK_TIERS_PEER_ADDRESSES_H
#define TCK_TIERS_PEER_ADDRESSES_H

#include "base/address_list.h"

#include <stdint.h>

#define ADDRESS_NONE       UINT32_MAX
#define ADDRESS_CHECK_MS   20000 /* an address that no session uses is checked so often */
#define ADDRESS_HEALTHY_MS 60000 /* after having answered for so long, an earlier address is used again */

struct peer_address {
    bool tried;        /* in this round, for long enough */
    uint64_t begun_ms; /* when it was first tried in this round; 0: it was not */
    bool failed;       /* it did not answer when it was tried last */
    uint64_t since_ms; /* when it first failed, or first answered, without a change since; 0: never tried */
    uint64_t tried_ms; /* 0: never */
};

struct peer_addresses {
    uint32_t count;
    uint32_t rounds; /* that are over without a session */
    uint32_t in_use; /* by the session that is up; ADDRESS_NONE: there is no session, or its address is not known */
    struct peer_address of[ADDRESSES_MAX];
};

/* How long an address is tried: the whole time-out if it is the only one. Several share the time of the first round,
 * and get twice as much in each later one, up to the time-out. */
uint32_t addresses_limit_ms(const struct peer_addresses *a, uint32_t timeout_ms, uint32_t round_ms);

/* The next one of this round, which may be the last one again; ADDRESS_NONE: all were tried. */
uint32_t addresses_next(const struct peer_addresses *a);
void addresses_new_round(struct peer_addresses *a);
void addresses_first_round(struct peer_addresses *a); /* a session has begun or ended */
/* A session has begun that uses none of them, so that nothing more is learned of them. */
void addresses_forget(struct peer_addresses *a);
void addresses_try(struct peer_addresses *a, uint32_t i, uint64_t now_ms);
/* It refused a try, or the connection broke. */
void addresses_refused(struct peer_addresses *a, uint32_t i, uint64_t now_ms, uint32_t limit_ms);
/* It gave no answer to a try or in a session, or failed in a check; or it did answer. True: it is news. */
bool addresses_failed(struct peer_addresses *a, uint32_t i, uint64_t now_ms);
bool addresses_answered(struct peer_addresses *a, uint32_t i, uint64_t now_ms);

/* The address that no session uses and that is due to be checked; ADDRESS_NONE: none is. */
uint32_t addresses_to_check(const struct peer_addresses *a, uint64_t now_ms);
/* The address to which the session should return: an earlier one that has been healthy for a while. ADDRESS_NONE: it
 * stays. */
uint32_t addresses_better(const struct peer_addresses *a, uint64_t now_ms);

#endif
