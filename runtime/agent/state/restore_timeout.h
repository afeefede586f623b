/* SPDX-License-Identifier: Apache-2.0
 * How long a trainer waits for shards that are being sent to its node: as long as there is progress. Pure; restore.c
 * calls it. */
#ifndef TCK_AGENT_PATIENCE_H
#define TCK_AGENT_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

/* The node's fetches: how many have ended so far, and whether one is under way. */
struct fetch_tally {
    uint64_t came, failed;
    bool under_way;
};

/* Zeros at first. */
struct restore_timeout {
    uint64_t moved_ms; /* time of the last progress */
    struct fetch_tally then;
};

/* False: no progress for limit_ms. A fetch under way is progress until `tries` fetches have failed without a success,
 * since failing fetches are repeated for ever. */
bool restore_timeout_lasts(struct restore_timeout *p, const struct fetch_tally *now, uint64_t tries, uint64_t limit_ms,
                           uint64_t now_ms);

/* The limit of tries for a node with that many shards. */
uint64_t restore_timeout_tries(uint32_t shards);
/* How long a shard may be in flight without a sign, if `turn` owners pass it on, one after the other, until this node
 * has it (placement_turn): each sends to two at once, no slower than 100 MB/s. */
uint64_t restore_timeout_turn_ms(uint32_t turn, uint64_t image_bytes);

/* A trainer's shards when the version that it restores can be read. */
struct restore_shards {
    uint32_t lacking; /* that are not on this node */
    bool may_lack;    /* it gets them from other ranks */
    bool moves;       /* restore_timeout_lasts */
    bool recovered;   /* the term's recovery is over */
};

enum restore_verdict { RESTORE_READ, RESTORE_WAIT, RESTORE_LACKS };

/* One owner may have sufficed to let the trainers read: then what this node lacks is still on its way. A copy that was
 * damaged here after that is not, and is not fetched again in this term. */
enum restore_verdict restore_judge(const struct restore_shards *shards);

#endif
