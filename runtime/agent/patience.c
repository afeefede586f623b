/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/patience.h"

bool patience_lasts(struct patience *p, const struct fetch_tally *now, uint64_t tries, uint64_t limit_ms,
                    uint64_t now_ms)
{
    if (p->moved_ms == 0 || now->came != p->then.came) {
        *p = (struct patience){now_ms, *now};
    } else if (now->under_way && now->failed - p->then.failed < tries) {
        p->moved_ms = now_ms;
    }
    return now_ms - p->moved_ms < limit_ms;
}
