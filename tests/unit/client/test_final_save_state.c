/* SPDX-License-Identifier: Apache-2.0
 * The ranks' next action while the last step is saved to storage. */
#include "client/final_save_state.h"

#include <criterion/criterion.h>

Test(final_save_state, one_rank_that_is_refused_has_all_begin_a_new_term)
{
    const uint8_t states[] = {LAST_SAVED, LAST_REFUSED, LAST_PENDING, LAST_SAVED};
    cr_assert_eq(final_save_state_of_all(states, 4), LAST_REFUSED);
    cr_assert_eq(final_save_state_of_all(states, 1), LAST_SAVED);
    cr_assert_eq(final_save_state_of_all(states + 2, 2), LAST_PENDING);
}

Test(final_save_state, no_new_term_repairs_what_failed)
{
    const uint8_t states[] = {LAST_REFUSED, LAST_FAILED, LAST_SAVED};
    cr_assert_eq(final_save_state_of_all(states, 3), LAST_FAILED);
}

Test(final_save_state, only_a_step_that_was_canceled_is_worth_a_new_term)
{
    cr_assert_eq(final_save_state_of(TCK_OK), LAST_SAVED);
    cr_assert_eq(final_save_state_of(TCK_ERR_BUSY), LAST_PENDING);
    cr_assert_eq(final_save_state_of(TCK_ERR_CANCELED), LAST_REFUSED);
    cr_assert_eq(final_save_state_of(TCK_ERR_TIMEDOUT), LAST_FAILED);
    cr_assert_eq(final_save_state_of(TCK_ERR_NOSPC), LAST_FAILED);
}
