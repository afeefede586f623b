/* SPDX-License-Identifier: Apache-2.0
 * What the ranks do next on the way of the last step to storage, given how far each of them is. Pure. */
#ifndef TCK_CLIENT_LAST_STATE_H
#define TCK_CLIENT_LAST_STATE_H

#include "base/status.h"

#include <stdbool.h>

/* In this order: of several ranks the last one counts. */
enum final_save_state {
    LAST_SAVED,   /* in storage */
    LAST_PENDING, /* another round */
    LAST_REFUSED, /* it cannot come there in this term, perhaps in a new one: a step is saved once in a term */
    LAST_FAILED,
};

/* TCK_ERR_BUSY: pending; TCK_ERR_CANCELED: refused. */
enum final_save_state final_save_state_of(tck_status_t status);
enum final_save_state final_save_state_of_all(const uint8_t *states, uint32_t count);

#define FINAL_RECOVERY_MS \
    20000 /* a term that has not recovered after so long does not come to it; then there is room or not */

/* What is known of the agent's memory when the last step is to be saved, and no save before it is undecided. */
struct final_save_room {
    tck_status_t answer;      /* of the agent; if TCK_OK: */
    bool draining, recovered; /* a version holds its slots for storage; the term's recovery is over */
    bool saved_before;        /* a step, by this process */
    uint64_t waited_ms;       /* since its rounds began in this term */
};

/* An agent that cannot say it is not waited for, unless it has only not answered yet. */
bool final_save_has_room(const struct final_save_room *room);

#endif
