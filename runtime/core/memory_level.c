/* SPDX-License-Identifier: Apache-2.0
 * Levels of memory pressure, and how long they last. */
#include "core/memory_level.h"

#define RESERVE_DIVISOR 50 /* 2 % */
#define RESERVE_MIN     ((uint64_t)64 << 20)
#define STALLS_COUNT    4 /* processes that wait for memory count if less than this many reserves are left */
#define CALM_RESERVES   2 /* left beside a slot that is used again */

const char *memory_level_name(enum memory_level level)
{
    static const char *const names[] = {
        [MEMORY_ENOUGH] = "enough", [MEMORY_LOW] = "low", [MEMORY_CRITICAL] = "critical"};
    return (unsigned)level < sizeof(names) / sizeof(*names) ? names[level] : "unknown";
}

uint64_t memory_reserve(const struct memory_figures *figures, uint64_t configured_bytes)
{
    uint64_t share = figures->total_bytes / RESERVE_DIVISOR;
    if (configured_bytes > 0) {
        return configured_bytes;
    }
    return share < RESERVE_MIN ? RESERVE_MIN : share;
}

/* Whether so many reserves are left; the product may not fit into 64 bits. */
static bool leaves(const struct memory_figures *f, uint64_t reserve_bytes, uint64_t reserves)
{
    return f->available_bytes / reserves >= reserve_bytes;
}

static enum memory_level level_of(const struct memory_watch_state *state, const struct memory_figures *f,
                                  uint64_t reserve_bytes)
{
    bool failed = state->any && f->failures > state->before.failures;
    bool stalled = state->any && f->stalls > state->before.stalls;
    if (failed || f->available_bytes < reserve_bytes / 2) {
        return MEMORY_CRITICAL;
    }
    bool low = f->available_bytes < reserve_bytes || (stalled && !leaves(f, reserve_bytes, STALLS_COUNT));
    return low ? MEMORY_LOW : MEMORY_ENOUGH;
}

void memory_level_take(struct memory_watch_state *state, const struct memory_figures *figures, uint64_t reserve_bytes,
                       uint64_t now_ms)
{
    state->now = level_of(state, figures, reserve_bytes);
    state->before = *figures;
    state->any = true;
    if (state->now >= state->level || now_ms - state->lower_since_ms >= MEMORY_CALM_MS) {
        state->level = state->now;
        state->lower_since_ms = now_ms;
    }
}

bool memory_level_allows(const struct memory_watch_state *state, uint64_t reserve_bytes, uint64_t slot_bytes)
{
    uint64_t left = state->before.available_bytes > slot_bytes ? state->before.available_bytes - slot_bytes : 0;
    return state->any && state->level == MEMORY_ENOUGH && left / CALM_RESERVES >= reserve_bytes;
}
