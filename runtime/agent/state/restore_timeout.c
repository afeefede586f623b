/* SPDX-License-Identifier: Apache-2.0
 * Decides how long a trainer waits for shards that are being sent to its node. Pure; called by restore.c. */
#include "agent/state/restore_timeout.h"

#define TRIES      8      /* fetches of one shard while a trainer waits for it */
#define AT_ONCE    2      /* nodes that a shard is sent to */
#define SLOW_BYTES 100000 /* per ms */

bool restore_timeout_lasts(struct restore_timeout *p, const struct fetch_tally *now, uint64_t tries, uint64_t limit_ms,
                           uint64_t now_ms)
{
    if (p->progress_ms == 0 || now->arrived != p->last.arrived) {
        *p = (struct restore_timeout){now_ms, *now};
    } else if (now->under_way && now->failed - p->last.failed < tries) {
        p->progress_ms = now_ms;
    }
    return now_ms - p->progress_ms < limit_ms;
}

uint64_t restore_timeout_tries(uint32_t shards)
{
    return (uint64_t)TRIES * shards;
}

uint64_t restore_timeout_turn_ms(uint32_t turn, uint64_t image_bytes)
{
    return turn < 2 ? 0 : (uint64_t)AT_ONCE * (turn - 1) * (image_bytes / SLOW_BYTES);
}

enum restore_verdict restore_judge(const struct restore_shards *shards)
{
    if (shards->lacking == 0 || shards->may_lack) {
        return RESTORE_READ;
    }
    return shards->progressing && !shards->recovered ? RESTORE_WAIT : RESTORE_LACKS;
}
