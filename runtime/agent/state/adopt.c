/* SPDX-License-Identifier: Apache-2.0
 * Persists the newest term that this agent knows of before anything acts on it. */
#include "agent/state/adopt.h"

#include "agent/state/hard_state.h"
#include "base/log.h"

#include <inttypes.h>

void adopt_term(const struct adopt_setup *adopt, uint64_t term)
{
    struct kept kept = *hard_state_get(adopt->state);
    bool newer = term_adopt(&kept.term, term);
    if (newer) {
        reserve_adopted(&kept.reserve, term);
        hard_state_put(adopt->state, &kept);
        log_info("adopted term %" PRIu64, term);
    }
    adopt->adopted(adopt->ctx, term, newer);
}
