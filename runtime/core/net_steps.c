/* SPDX-License-Identifier: Apache-2.0
 * A step's parts, and the last steps as bits of each. */
#include "core/net_steps.h"

#include <string.h>

#define PARTS_PER_STEP 48 /* the others are for steps that take longer than usual */
#define KNOWN_MIN      4
#define BUSY_SHARE     10 /* used in one step of so many is not usual */

static uint64_t part_at(const struct net_steps *s, uint64_t ns)
{
    return (ns - s->begun_ns) / s->part_ns;
}

/* Parts of another length would be other times. */
static bool is_other_length(const struct net_steps *s, uint64_t step_ns)
{
    uint64_t usual_ns = s->part_ns * PARTS_PER_STEP;
    return step_ns < usual_ns - usual_ns / 4 || step_ns > usual_ns + usual_ns / 4;
}

void net_steps_begin(struct net_steps *s, uint64_t at_ns, uint64_t step_ns)
{
    if (step_ns < PARTS_PER_STEP) {
        net_steps_pause(s);
        return;
    }
    if (s->part_ns == 0 || is_other_length(s, step_ns)) {
        memset(s, 0, sizeof(*s));
        s->part_ns = step_ns / PARTS_PER_STEP;
    }
    for (int i = 0; i < NET_STEPS_PARTS; i++) {
        s->busy[i] <<= 1;
        s->known[i] <<= 1;
    }
    s->begun_ns = at_ns;
}

void net_steps_pause(struct net_steps *s)
{
    s->begun_ns = 0;
}

void net_steps_note(struct net_steps *s, uint64_t from_ns, uint64_t to_ns, bool busy)
{
    if (s->begun_ns == 0 || from_ns < s->begun_ns || to_ns < from_ns) {
        return;
    }
    uint64_t last = part_at(s, to_ns);
    for (uint64_t i = part_at(s, from_ns); i <= last && i < NET_STEPS_PARTS; i++) {
        s->known[i] |= 1;
        s->busy[i] |= busy;
    }
}

bool net_steps_busy(const struct net_steps *s, uint64_t now_ns, uint64_t for_ns)
{
    uint32_t busy = 0, known = UINT32_MAX;
    if (s->begun_ns == 0 || now_ns < s->begun_ns) {
        return false;
    }
    uint64_t first = part_at(s, now_ns), last = part_at(s, now_ns + for_ns);
    for (uint64_t i = first; i <= last && i < NET_STEPS_PARTS; i++) {
        busy |= s->busy[i];
        known &= s->known[i];
    }
    uint32_t steps = (uint32_t)__builtin_popcount((busy | known) & ~1u);
    uint32_t used = (uint32_t)__builtin_popcount(busy & ~1u);
    return first < NET_STEPS_PARTS && steps >= KNOWN_MIN && used * BUSY_SHARE > steps;
}
