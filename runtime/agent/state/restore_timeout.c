/* SPDX-License-Identifier: Apache-2.0
 * How long a trainer waits for shards that are on their way to its node. Pure; restore.c calls it. */
#include "agent/state/restore_timeout.h"

#define TRIES      8      /* fetches of one shard, while a trainer waits for it */
#define AT_ONCE    2      /* that a shard is sent to */
#define SLOW_BYTES 100000 /* per ms */

bool restore_timeout_lasts(struct restore_timeout *p, const struct fetch_tally *now, uint64_t tries, uint64_t limit_ms,
                           uint64_t now_ms)
{
    if (p->moved_ms == 0 || now->came != p->then.came) {
        *p = (struct restore_timeout){now_ms, *now};
    } else if (now->under_way && now->failed - p->then.failed < tries) {
        p->moved_ms = now_ms;
    }
    return now_ms - p->moved_ms < limit_ms;
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
    return shards->moves && !shards->recovered ? RESTORE_WAIT : RESTORE_LACKS;
}
