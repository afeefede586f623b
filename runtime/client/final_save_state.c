/* SPDX-License-Identifier: Apache-2.0
 * Decides what the ranks do next to bring the last step to storage. */
#include "client/final_save_state.h"

enum final_save_state final_save_state_of(tck_status_t status)
{
    if (status == TCK_OK) {
        return LAST_SAVED;
    }
    if (status == TCK_ERR_BUSY) {
        return LAST_PENDING;
    }
    return status == TCK_ERR_CANCELED ? LAST_REFUSED : LAST_FAILED;
}

enum final_save_state final_save_state_of_all(const uint8_t *states, uint32_t count)
{
    uint8_t worst = LAST_SAVED;

    for (uint32_t r = 0; r < count; r++) {
        worst = states[r] > worst ? states[r] : worst;
    }
    return (enum final_save_state)worst;
}
