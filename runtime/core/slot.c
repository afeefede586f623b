/* SPDX-License-Identifier: Apache-2.0
 * The table of a slot's legal transitions, and the state of a slot after a restart. */
#include "core/slot.h"

const char *slot_state_name(enum slot_state state)
{
    static const char *const names[SLOT_STATES] = {
        [SLOT_FREE] = "free",           [SLOT_FILLING] = "filling",   [SLOT_SEALED] = "sealed",
        [SLOT_RECEIVING] = "receiving", [SLOT_VERIFIED] = "verified", [SLOT_QUARANTINED] = "quarantined",
    };
    return (unsigned)state < SLOT_STATES ? names[state] : "unknown";
}

enum slot_state slot_found(enum slot_state state, struct version version, struct version seal, uint64_t term)
{
    if (state == SLOT_VERIFIED || state == SLOT_SEALED || state == SLOT_QUARANTINED) {
        return state;
    }
    if (state != SLOT_FILLING) {
        return SLOT_FREE;
    }
    if (version_is(seal, version)) {
        return SLOT_SEALED;
    }
    return version.term == term ? SLOT_FILLING : SLOT_QUARANTINED;
}

bool slot_may_become(enum slot_state from, enum slot_state to)
{
    static const bool legal[SLOT_STATES][SLOT_STATES] = {
        [SLOT_FREE] = {[SLOT_FILLING] = true, [SLOT_RECEIVING] = true},
        [SLOT_FILLING] = {[SLOT_FREE] = true, [SLOT_SEALED] = true, [SLOT_QUARANTINED] = true},
        [SLOT_SEALED] = {[SLOT_FREE] = true, [SLOT_VERIFIED] = true},
        [SLOT_RECEIVING] = {[SLOT_FREE] = true, [SLOT_VERIFIED] = true},
        [SLOT_VERIFIED] = {[SLOT_FREE] = true},
        [SLOT_QUARANTINED] = {[SLOT_FREE] = true},
    };
    return (unsigned)from < SLOT_STATES && (unsigned)to < SLOT_STATES && legal[from][to];
}
