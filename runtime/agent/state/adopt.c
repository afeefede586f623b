/* SPDX-License-Identifier: Apache-2.0
 * Persists the newest term that this agent knows of before anything acts on it. */
#include "agent/state/adopt.h"

#include <inttypes.h>

void adopt_term(struct agent *agent, uint64_t term)
{
    struct kept kept = *hard_state_get(agent->state);
    bool newer = term_adopt(&kept.term, term);
    if (newer) {
        reserve_adopted(&kept.reserve, term);
        hard_state_put(agent->state, &kept);
        log_info("adopted term %" PRIu64, term);
    }
    agent->hooks->term_adopted(agent, term, newer);
}
