/* SPDX-License-Identifier: Apache-2.0
 * See retry.h. */
#include "published/retry.h"

#include "base/progress.h"
#include "tiers/published_versions.h"

#include <time.h>

#define FIRST_PAUSE_NS 100000000
#define PAUSE_STEP_NS  50000000

tck_status_t retry_answer(tck_status_t status, struct error *err)
{
    return status == TCK_ERR_TIMEDOUT ? (err->code = TCK_ERR_IO) : status;
}

/* After a hang, storage has had enough time already. */
bool retry_helps(tck_status_t status)
{
    return status != TCK_OK && !status_proves_damage(status) && status != TCK_ERR_PROTO && status != TCK_ERR_TIMEDOUT;
}

/* The pause is reported as progress in small steps, since it is not a wait for storage. */
void retry_pause(int number)
{
    uint64_t left_ns = number == 0 ? 0 : (uint64_t)FIRST_PAUSE_NS << (number - 1);
    for (; left_ns > 0; left_ns -= PAUSE_STEP_NS) {
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_STEP_NS}, NULL);
        progress_moved();
    }
}
