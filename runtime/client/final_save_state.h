/* SPDX-License-Identifier: Apache-2.0
 * Decides what the ranks do next to bring the last step to storage, given the state of each of them. Pure. */
#ifndef TCK_CLIENT_LAST_STATE_H
#define TCK_CLIENT_LAST_STATE_H

#include "base/status.h"

#include <stdint.h>

/* In this order: if ranks differ, the latest value counts. */
enum final_save_state {
    LAST_SAVED,   /* on storage */
    LAST_PENDING, /* another round */
    LAST_REFUSED, /* it cannot get there in this term, since a step is saved once per term, but perhaps in a new one */
    LAST_FAILED,
};

/* TCK_ERR_BUSY: pending; TCK_ERR_CANCELED: refused. */
enum final_save_state final_save_state_of(tck_status_t status);
enum final_save_state final_save_state_of_all(const uint8_t *states, uint32_t count);

#endif
