/* SPDX-License-Identifier: Apache-2.0
 * What the board says of the end of this trainer's term. */
#include "client/over.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define WHO_BYTES 160

/* The agent may still be reading it. */
static void put_who(const struct board *board, char out[WHO_BYTES])
{
    time_t seconds = (time_t)(board->over_by.wall_ms / 1000);
    char when[32] = "";
    struct tm tm;

    out[0] = '\0';
    if (atomic_load_explicit(&board->over_told, memory_order_acquire) == 0) {
        return;
    }
    if (gmtime_r(&seconds, &tm) != NULL) {
        (void)strftime(when, sizeof(when), ", %Y-%m-%d %H:%M:%S UTC", &tm);
    }
    snprintf(out, WHO_BYTES, " (rank 0 is pid %" PRIu32 " on node %.63s%s)", board->over_by.pid, board->over_by.node,
             when);
}

tck_status_t session_over(const struct session *session, struct error *err)
{
    uint64_t term = session->board == NULL ? 0 : atomic_load_explicit(&session->board->over_term, memory_order_acquire);
    char who[WHO_BYTES];

    if (term == 0) {
        return TCK_OK;
    }
    put_who(session->board, who);
    return error_set(err, TCK_ERR_DENIED,
                     "another start of job %s has taken it over with term %" PRIu64
                     "%s: nothing of this one (term %" PRIu64 ") is saved any more",
                     session->config.job, term, who, session->world.term);
}
