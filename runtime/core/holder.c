/* SPDX-License-Identifier: Apache-2.0
 * The verdict on a claim. */
#include "core/holder.h"

bool holder_counts(const struct holder_trainer *trainer, uint64_t terms_from)
{
    if (trainer->term == 0 || trainer->term < terms_from || !trainer->alive || trainer->done || trainer->arrives) {
        return false;
    }
    return trainer->ancestor || !trainer->same_run;
}

/* Each claim is given time to be written, including one that another start has made while this one was asking. */
bool holder_may_be_written(struct holder_unnamed *unnamed, uint64_t newest, bool named, uint64_t now_ms)
{
    if (named) {
        return false;
    }
    if (unnamed->term != newest) {
        *unnamed = (struct holder_unnamed){.term = newest, .since_ms = now_ms};
    }
    return now_ms - unnamed->since_ms < HOLDER_WRITE_MS;
}

enum holder_verdict holder_judge(const struct holder_claim *claim)
{
    if (claim->after != 0) {
        return claim->newest <= claim->after || claim->newest_ours ? HOLDER_FREE : HOLDER_SUPERSEDED;
    }
    if (claim->takeover) {
        return HOLDER_FREE;
    }
    if (claim->held > 0) {
        return claim->since_ms < HOLDER_END_MS ? HOLDER_WAIT : HOLDER_HELD;
    }
    if (claim->silent > 0 && claim->since_ms < HOLDER_ANSWER_MS) {
        return HOLDER_WAIT;
    }
    return claim->second ? HOLDER_SECOND : HOLDER_FREE;
}
