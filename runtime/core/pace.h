/* SPDX-License-Identifier: Apache-2.0
 * How fast copies and drains are sent. Pure.
 *
 * A lane is all that one node sends to its peers, or all that it writes to storage. The time from one version to the
 * next is known from the last ones, and a version's bytes are spread over a part of it, the spread, at the least rate
 * that sends them in that time. One chunk may be sent at once, and what was throttled for other reasons (net_phase.h,
 * inflation.h) may be made up for in small bursts. A lane that falls too far behind must go on in any case: that the
 * next version finds its slots free is worth more than the steps' time. */
#ifndef TCK_CORE_PACE_H
#define TCK_CORE_PACE_H

#include "base/version.h"

#include <stdbool.h>
#include <stdint.h>

#define PACE_SPREAD_MIN   0.1
#define PACE_SPREAD_MAX   0.9 /* the rest of the interval is for checks, acknowledgements and the decision */
#define PACE_SPREAD_FIRST 0.5
#define PACE_SMALL_BYTES  (UINT64_C(16) << 20) /* a version with no more than this is sent at once */
#define PACE_BURST_BYTES  (UINT64_C(16) << 20)

/* Zeroed: nothing was sent yet. */
struct pace_lane {
    struct version version;     /* the newest one that was begun, */
    uint64_t begun_ns;          /* and when */
    uint64_t gap_ns, before_ns; /* from the version before it, and from that before that; 0: there was none */
    uint64_t total, left;       /* bytes to be sent since then, and those of them that were not */
    uint64_t next_ns;           /* when the next bytes may be sent */
};

/* More bytes are to be sent. */
void pace_begin(struct pace_lane *lane, struct version version, uint64_t bytes, uint64_t now_ns);
/* So many of the bytes that are left are not sent after all. */
void pace_drop(struct pace_lane *lane, uint64_t bytes);
/* More bytes of what was begun are to be sent than was expected. */
void pace_more(struct pace_lane *lane, uint64_t bytes);
/* Nothing is to be sent any more. */
void pace_end(struct pace_lane *lane);
/* The interval that the version's bytes are spread over a part of, at most longest_ns; 0: none is known, or the version
 * is small, so nothing is throttled. */
uint64_t pace_interval(const struct pace_lane *lane, uint64_t longest_ns);
/* Bytes per second now; 0: not limited. */
double pace_rate(const struct pace_lane *lane, uint64_t interval_ns, double spread, uint64_t now_ns);
/* Whether the rate allows to send now. */
bool pace_may(const struct pace_lane *lane, uint64_t interval_ns, uint64_t now_ns);
/* Whether the lane is so late that nothing may throttle it any more. */
bool pace_must(const struct pace_lane *lane, uint64_t interval_ns, uint64_t now_ns);
void pace_sent(struct pace_lane *lane, uint64_t bytes, uint64_t interval_ns, double spread, uint64_t now_ns);

#endif
