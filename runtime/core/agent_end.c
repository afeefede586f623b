/* SPDX-License-Identifier: Apache-2.0
 * Decides when an agent exits by itself. */
#include "core/agent_end.h"

static enum agent_leave judge_idle(const struct agent_use *use, uint64_t idle_ms)
{
    if (use->job_done && idle_ms >= AGENT_AFTER_DONE_MS) {
        bool waits = (use->writes && idle_ms < AGENT_DRAIN_WAIT_MS) || (use->copies && idle_ms < use->grace_ms);
        return waits ? AGENT_IDLE : AGENT_LEAVES_DONE;
    }
    if (idle_ms < use->linger_ms) {
        return AGENT_IDLE;
    }
    return use->job_done ? AGENT_LEAVES_DONE : AGENT_LEAVES_ALONE;
}

static bool is_asked(const struct agent_use *use)
{
    return use->asked_ms != 0;
}

enum agent_leave agent_leave_judge(const struct agent_use *use, uint64_t now_ms)
{
    if (use->stop_forced) {
        return AGENT_LEAVES_STOPPED;
    }
    if (is_asked(use) && (!use->owes || now_ms - use->asked_ms >= use->grace_ms)) {
        return AGENT_LEAVES_ASKED;
    }
    if (use->trainers) {
        return AGENT_IN_USE;
    }
    return use->idle_since_ms == 0 ? AGENT_IDLE : judge_idle(use, now_ms - use->idle_since_ms);
}

/* Half of the linger time is left for the drain, and for repeating it. */
bool agent_drains_at_end(const struct agent_use *use, uint64_t now_ms)
{
    bool alone = !use->trainers && !use->job_done && use->idle_since_ms != 0;
    bool late = alone && now_ms - use->idle_since_ms >= use->linger_ms / 2;
    return use->undrained && (late || (is_asked(use) && use->owes));
}

enum agent_deaf agent_deaf_judge(const struct agent_hearing *hearing, uint64_t now_ms)
{
    if (hearing->job_done || hearing->listening) {
        return AGENT_HEARS;
    }
    if (hearing->since_ms == 0) {
        return AGENT_TURNS_DEAF;
    }
    return hearing->kept && now_ms - hearing->since_ms >= AGENT_DEAF_MS ? AGENT_ENDS_DEAF : AGENT_STAYS_DEAF;
}
