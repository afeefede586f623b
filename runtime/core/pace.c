/* SPDX-License-Identifier: Apache-2.0
 * The least rate that sends a version in time. */
#include "core/pace.h"

#define NS_PER_S 1e9
/* Up to here a lane may be throttled completely; from here to PACE_SPREAD_MAX it must have sent its share. */
#define MUST_FROM 0.3

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void pace_begin(struct pace_lane *lane, struct version version, uint64_t bytes, uint64_t now_ns)
{
    if (version_cmp(version, lane->version) > 0) {
        lane->before_ns = lane->gap_ns;
        lane->gap_ns = lane->begun_ns != 0 && version.term == lane->version.term ? now_ns - lane->begun_ns : 0;
        lane->version = version;
        lane->begun_ns = now_ns;
        lane->total = lane->left;
        lane->next_ns = now_ns;
    }
    pace_more(lane, bytes);
}

void pace_more(struct pace_lane *lane, uint64_t bytes)
{
    lane->total += bytes;
    lane->left += bytes;
}

void pace_drop(struct pace_lane *lane, uint64_t bytes)
{
    uint64_t dropped = least(bytes, lane->left);
    lane->total -= dropped;
    lane->left -= dropped;
}

void pace_end(struct pace_lane *lane)
{
    lane->left = 0;
}

/* The shorter one of the last two gaps: after a pause of the training one of them is too long. */
uint64_t pace_interval(const struct pace_lane *lane, uint64_t longest_ns)
{
    uint64_t gap = lane->before_ns != 0 ? least(lane->gap_ns, lane->before_ns) : lane->gap_ns;
    return lane->total <= PACE_SMALL_BYTES ? 0 : least(gap, longest_ns);
}

double pace_rate(const struct pace_lane *lane, uint64_t interval_ns, double spread, uint64_t now_ns)
{
    double left_ns = spread * (double)interval_ns - (double)(now_ns - lane->begun_ns);
    return interval_ns == 0 || left_ns <= 0 ? 0 : (double)lane->left * NS_PER_S / left_ns;
}

bool pace_may(const struct pace_lane *lane, uint64_t interval_ns, uint64_t now_ns)
{
    return interval_ns == 0 || now_ns >= lane->next_ns;
}

bool pace_must(const struct pace_lane *lane, uint64_t interval_ns, uint64_t now_ns)
{
    double from = MUST_FROM * (double)interval_ns, to = PACE_SPREAD_MAX * (double)interval_ns;
    double due = ((double)(now_ns - lane->begun_ns) - from) / (to - from) * (double)lane->total;
    return interval_ns == 0 || (double)(lane->total - lane->left) < due;
}

/* Earlier by as much as a burst takes: what was throttled meanwhile may be made up for. */
static uint64_t burst_from(uint64_t now_ns, double rate)
{
    double burst_ns = (double)(PACE_BURST_BYTES)*NS_PER_S / rate;
    return burst_ns < (double)now_ns ? now_ns - (uint64_t)burst_ns : 0;
}

void pace_sent(struct pace_lane *lane, uint64_t bytes, uint64_t interval_ns, double spread, uint64_t now_ns)
{
    double rate = pace_rate(lane, interval_ns, spread, now_ns);
    if (rate > 0) {
        uint64_t from = burst_from(now_ns, rate);
        from = lane->next_ns > from ? lane->next_ns : from;
        lane->next_ns = from + (uint64_t)((double)bytes * NS_PER_S / rate);
    } else {
        lane->next_ns = now_ns;
    }
    lane->left -= least(bytes, lane->left);
}
