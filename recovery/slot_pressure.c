/* SPDX-License-Identifier: Apache-2.0
 * How a save gets a slot while a recovery keeps those of older versions occupied. The coordinator's agent calls it. */
#include "recovery/recovery.h"

/* Only a base that can never be completed is given up: a member or a copy that was out of reach may be back. */
static enum recovery_free_slots after_failure(tck_status_t failure, bool has_base)
{
    if (failure == TCK_ERR_NOENT && !has_base) {
        return RELIEF_NONE; /* a fresh start, which was reported at that time */
    }
    bool for_good = failure == TCK_ERR_UNRECOVERABLE || (failure == TCK_ERR_LAYOUT && !has_base);
    if (!for_good) {
        return RELIEF_BEGIN_AGAIN;
    }
    return has_base ? RELIEF_BASE_LOST : RELIEF_NO_BASE;
}

enum recovery_free_slots recovery_free_slots(const struct recovery *r, const struct decision *d)
{
    if (r == NULL || decision_is_recovered(d)) {
        return RELIEF_NONE;
    }
    switch (recovery_phase(r)) {
    case RECOVERY_IDLE:
    case RECOVERY_ASKING:
    case RECOVERY_FETCHING:
    case RECOVERY_PROTECTING:
        return RELIEF_PRESS;
    case RECOVERY_FAILED:
        return after_failure(recovery_failure(r), d->readable && !version_none(d->base));
    case RECOVERY_DONE:
    case RECOVERY_LOST:
        break;
    }
    return RELIEF_NONE;
}
