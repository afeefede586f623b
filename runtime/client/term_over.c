/* SPDX-License-Identifier: Apache-2.0
 * Reads from the shared status whether this trainer's term is over, and names the start that ended it. */
#include "client/term_over.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define WHO_BYTES 160

/* The agent may still be reading it. */
static void put_who(const struct shared_status *shared, char out[WHO_BYTES])
{
    time_t seconds = (time_t)(shared->over_by.wall_ms / 1000);
    char when[32] = "";
    struct tm tm;

    out[0] = '\0';
    if (atomic_load_explicit(&shared->over_told, memory_order_acquire) == 0) {
        return;
    }
    if (gmtime_r(&seconds, &tm) != NULL) {
        (void)strftime(when, sizeof(when), ", %Y-%m-%d %H:%M:%S UTC", &tm);
    }
    snprintf(out, WHO_BYTES, " (rank 0 is pid %" PRIu32 " on node %.63s%s)", shared->over_by.pid, shared->over_by.node,
             when);
}

tck_status_t session_term_over(const struct session *session, struct error *err)
{
    uint64_t term =
        session->shared == NULL ? 0 : atomic_load_explicit(&session->shared->over_term, memory_order_acquire);
    char who[WHO_BYTES];

    if (term == 0) {
        return TCK_OK;
    }
    put_who(session->shared, who);
    return error_set(err, TCK_ERR_DENIED,
                     "another start of job %s has taken it over with term %" PRIu64
                     "%s: nothing of this one (term %" PRIu64 ") is saved any more",
                     session->config.job, term, who, session->world.term);
}
