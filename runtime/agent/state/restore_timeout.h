/* SPDX-License-Identifier: Apache-2.0
 * Decides how long a trainer waits for shards that are being sent to its node: as long as there is progress. Pure;
 * called by restore.c. */
#ifndef TCK_AGENT_PATIENCE_H
#define TCK_AGENT_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

/* The node's fetches: how many have ended so far, and whether one is under way. */
struct fetch_tally {
    uint64_t arrived, failed;
    bool under_way;
};

/* Initialized with zeros. */
struct restore_timeout {
    uint64_t progress_ms; /* time of the last progress */
    struct fetch_tally last;
};

/* False: no progress for limit_ms. A fetch under way is progress until `tries` fetches have failed without a success,
 * since failing fetches are repeated forever. */
bool restore_timeout_lasts(struct restore_timeout *p, const struct fetch_tally *now, uint64_t tries, uint64_t limit_ms,
                           uint64_t now_ms);

/* The limit of tries for a node with that many shards. */
uint64_t restore_timeout_tries(uint32_t shards);
/* How long a shard may be in flight without progress if it is forwarded through `turn` owners, one after the other,
 * before this node has it (placement_turn): each sends to two at once, at no less than 100 MB/s. */
uint64_t restore_timeout_turn_ms(uint32_t turn, uint64_t image_bytes);

/* The state of a trainer's shards once the version that it restores can be read. */
struct restore_shards {
    uint32_t lacking; /* shards that are not on this node */
    bool may_lack;    /* it can get them from other ranks */
    bool progressing; /* result of restore_timeout_lasts */
    bool recovered;   /* the term's recovery is over */
};

enum restore_verdict { RESTORE_READ, RESTORE_WAIT, RESTORE_LACKS };

/* Trainers may read as soon as one owner has each shard, so what this node lacks may still be in flight. Once the
 * recovery is over, nothing is in flight: a copy that is damaged here after that is not fetched again for a restore in
 * this term. */
enum restore_verdict restore_judge(const struct restore_shards *shards);

#endif
