/* SPDX-License-Identifier: Apache-2.0
 * What has happened since this agent started, counted where it happens by the composition (actions.c, peer_messages.c,
 * open_parts.c). Parts count what only they see themselves; report.c puts all of it together. */
#ifndef TCK_AGENT_TALLY_H
#define TCK_AGENT_TALLY_H

#include "base/stall.h"
#include "core/protocol.h"

#define TALLY_STAGES              (STAGE_FAILED + 1)
#define TALLY_REFUSAL(name, text) TALLY_REFUSAL_##name,
enum { TALLY_REFUSAL_NONE, REFUSAL_MAP(TALLY_REFUSAL) TALLY_REFUSALS };
#undef TALLY_REFUSAL

struct tally {
    uint64_t saves_begun;                   /* by trainers of this node */
    uint64_t saves_refused[TALLY_REFUSALS]; /* by enum refusal; entry 0 is not used */
    uint64_t versions[TALLY_STAGES];        /* that have come to this stage on this node */
    uint64_t stage_wall_ms[TALLY_STAGES];   /* when the last one did; 0: none did */
    uint64_t digested_bytes;                /* of shards that trainers have saved */
    uint64_t copied_bytes;                  /* sent to the nodes that hold copies, and acknowledged */
    uint64_t received_bytes;                /* of copies that this node holds for others */
    uint64_t pulled_bytes;                  /* sent to nodes that have asked for a copy */
    struct version draining;                /* VERSION_NONE: nothing is */
    uint64_t drain_attempt;
    uint64_t draining_since_ms; /* clock_ms */
    struct stalls stalls;       /* of trainers of this node that have disconnected */
    uint64_t drain_ms;          /* the time that the last drain took until its version was published; 0: none was */
};

/* Notes since when the drain of this decision is under way, and how long the one before it took. */
static inline void tally_decided(struct tally *tally, const struct decision *d, uint64_t now_ms)
{
    bool same = version_is(tally->draining, d->drain) && tally->drain_attempt == d->drain_attempt;
    if (!same && !version_none(tally->draining) && version_cmp(d->published, tally->draining) >= 0) {
        tally->drain_ms = now_ms - tally->draining_since_ms + 1; /* rounded up, as 0 means unknown */
    }
    if (!same) {
        tally->draining = d->drain;
        tally->drain_attempt = d->drain_attempt;
        tally->draining_since_ms = now_ms;
    }
}

#endif
