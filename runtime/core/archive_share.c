/* SPDX-License-Identifier: Apache-2.0
 * See archive_share.h. */
#include "core/archive_share.h"

#include "core/archive_due.h"

void archive_share_begin(struct archive_share *share, uint64_t term)
{
    share->term = term;
    share->wanted = share->copied = VERSION_NONE;
}

void archive_share_want(struct archive_share *share, struct version version, uint64_t now_ms)
{
    if (!version_is(share->wanted, version)) {
        share->wanted = version;
        share->wanted_since_ms = now_ms;
        share->copied = VERSION_NONE;
        share->copy_after_ms = 0;
    }
}

static bool is_wanted(const struct archive_share *share)
{
    return share->copying_in == share->term && version_is(share->of, share->wanted);
}

enum archive_share_step archive_share_next(const struct archive_share *share, uint64_t now_ms)
{
    if (share->copying) {
        return is_wanted(share) ? SHARE_WAIT : SHARE_STOP;
    }
    if (version_none(share->wanted)) {
        return SHARE_WAIT;
    }
    if (version_is(share->copied, share->wanted)) {
        return SHARE_REPORT;
    }
    return now_ms >= share->copy_after_ms ? SHARE_COPY : SHARE_WAIT;
}

void archive_share_begun(struct archive_share *share)
{
    share->copying = true;
    share->copying_in = share->term;
    share->of = share->wanted;
}

void archive_share_unable(struct archive_share *share, uint64_t now_ms)
{
    share->copy_after_ms = now_ms + archive_pause_ms(1);
}

/* A copy that is not wanted any more may fail: retention may have deleted the version. */
struct archive_share_effects archive_share_ended(struct archive_share *share, enum archive_end end, uint64_t term,
                                                 uint64_t now_ms)
{
    bool wanted = is_wanted(share) && term == share->term, whole = end == ARCHIVE_DONE;
    bool failed = wanted && !whole && end != ARCHIVE_CANCELED;
    share->copying = false;
    if (whole && wanted) {
        share->copied = share->of;
    }
    share->failures = whole ? 0 : share->failures + failed;
    share->copy_after_ms = whole || !wanted ? 0 : now_ms + archive_pause_ms(share->failures);
    return (struct archive_share_effects){.works = whole, .failed = failed, .report = wanted && (whole || failed)};
}

bool archive_share_owes(const struct archive_share *share, uint64_t patience_ms, uint64_t now_ms)
{
    return !version_none(share->wanted) && !version_is(share->copied, share->wanted) &&
           now_ms - share->wanted_since_ms < patience_ms;
}
