/* SPDX-License-Identifier: Apache-2.0
 * Agents for the tests of the peer tier: several of them on one loop over the loopback, each with one slot that it
 * receives copies into and sends copies from. */
#ifndef TCK_TESTS_PEER_RIG_H
#define TCK_TESTS_PEER_RIG_H

#include "tiers/peer.h"

#include <criterion/criterion.h>

#define RIG_HEARTBEAT_MS 20
#define RIG_TRANSFER_MS  2000
#define RIG_TIMEOUT_MS   400
#define RIG_JOB          "job"
#define RIG_BASE         ((struct version){1, 6}) /* the version before that of slot_item */

struct slot {
    uint8_t *image;
    uint32_t *crcs;
    uint64_t bytes;
    struct hash128 root;
};

struct agent {
    struct peers *peers;
    struct slot slot;
    size_t ups, downs, messages, beats;
    uint16_t last_type;
    uint8_t *last; /* the newest message */
    size_t last_len;
    struct peer *last_peer; /* whose session came up */
    tck_status_t answer;    /* to offers and pulls */
    size_t offers, stored, pulled, pull_dones, bad_bases;
    const uint8_t *here;     /* of its slot, what has arrived; NULL: all */
    bool undigested;         /* the digests of its slot are unknown */
    const struct slot *base; /* what it has of RIG_BASE; NULL: nothing */
    uint32_t bad_chunk;      /* of the base, the last one */
    uint64_t from_base;      /* bytes of the copy that was stored last */
    struct error stored_outcome;
    bool beat_silent;
    bool relays_nothing;
    struct tier_pace pace; /* set before agent_open */
};

/* A done callback's memory. */
struct outcome {
    size_t calls;
    struct error err;
};

extern struct loop *rig_loop;

void rig_open(void);
void rig_close(void); /* after all agents */
/* Ids order the agents: the smaller one connects. job NULL: RIG_JOB. */
void agent_open(struct agent *agent, uint64_t id, const char *job, uint8_t secret);
void agent_close(struct agent *agent);
struct peer *agent_want(struct agent *agent, const struct agent *other);
/* Each wants the other; returns when both sessions are up. */
void agents_meet(struct agent *a, struct agent *b, struct peer **b_of_a, struct peer **a_of_b);
/* Runs the loop until the counter has reached value. The test fails if that takes too long. */
void rig_run_until(const size_t *counter, size_t value);
void rig_run_ms(uint64_t ms);

void slot_fill(struct slot *slot, uint64_t bytes);  /* with a pattern, its CRCs and root */
void slot_empty(struct slot *slot, uint64_t bytes); /* zeros */
void slot_free(struct slot *slot);
struct tier_item slot_item(const struct slot *slot);
void outcome_done(void *ctx, const struct error *err);

#endif
