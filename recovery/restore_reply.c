/* SPDX-License-Identifier: Apache-2.0
 * The reply to a trainer that asks to restore. */
#include "recovery/restore_reply.h"

#include <tierckpt.h>

bool restore_is_due(const struct restore_due *due)
{
    if (due->recovering || decision_is_recovered(due->decision) || !due->all_registered) {
        return false;
    }
    bool unasked = due->waited_ms >= RESTORE_GRACE_MS && (due->decision->readable || !due->will_be_asked);
    return due->asked || unasked;
}

/* Whether the answer of the term's one recovery, if there is one by now, also answers this question. */
static bool fits_base(const struct restore_question *q)
{
    const struct decision *d = q->decision;
    return d->readable && (q->step == d->base.step || (q->step == TCK_NEWEST && !q->answered));
}

static bool begins(const struct restore_question *q)
{
    const struct decision *d = q->decision;
    bool begun = q->recovering || d->readable || d->based;
    return !begun || (!q->recovering && !d->based && fits_base(q));
}

static bool is_under_way(const struct restore_question *q)
{
    return q->recovering && !q->ended && !q->answered && (q->recovery_step == q->step || fits_base(q));
}

/* A decision without a base does not say why there is none, so only a recovery in a new term can determine whether
 * nothing was ever saved. */
static bool base_is_kept(const struct restore_question *q)
{
    const struct decision *d = q->decision;
    return !q->recovering && d->based && !version_none(d->base) && d->watermark.term < d->term;
}

static enum restore_reply refusal(const struct decision *d)
{
    if (d->watermark.term == d->term) {
        return RESTORE_SAVED;
    }
    return version_none(d->base) ? RESTORE_NO_BASE : RESTORE_OTHER;
}

enum restore_reply restore_reply(const struct restore_question *q)
{
    if (q->decision->base_lost) {
        return RESTORE_BASE_LOST;
    }
    if (begins(q)) {
        return RESTORE_BEGIN;
    }
    if (is_under_way(q)) {
        return RESTORE_UNDER_WAY;
    }
    if (q->answered && (fits_base(q) || q->answered_step == q->step)) {
        return RESTORE_ANSWERED;
    }
    if (!q->answered && base_is_kept(q)) {
        return RESTORE_KEPT_BASE;
    }
    return refusal(q->decision);
}
