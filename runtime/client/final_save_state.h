/* SPDX-License-Identifier: Apache-2.0
 * What the ranks do next on the way of the last step to storage, given how far each of them is. Pure. */
#ifndef TCK_CLIENT_LAST_STATE_H
#define TCK_CLIENT_LAST_STATE_H

#include "base/status.h"

#include <stdint.h>

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

#endif
