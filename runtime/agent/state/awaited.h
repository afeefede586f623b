/* SPDX-License-Identifier: Apache-2.0
 * What trainers of this node wait for, since when, and how far it is: for status, metrics and the trainers themselves.
 * Pure, but for the shared status. */
#ifndef TCK_AGENT_AWAITED_H
#define TCK_AGENT_AWAITED_H

#include <stdint.h>

struct shared_status;

enum await { AWAIT_MEMORY, AWAIT_RESTORE, AWAITS };

struct wait {
    uint64_t since_ms;                /* clock_ms, of the trainer that has waited longest; 0: none waits */
    uint64_t done_bytes, total_bytes; /* of this node; total 0: not known */
    uint64_t moved_ms;                /* when something moved last, or the wait began */
};

struct awaited {
    struct wait of[AWAITS];
};

/* As in metrics and status. */
static inline const char *await_name(enum await await)
{
    static const char *const names[AWAITS] = {[AWAIT_MEMORY] = "register", [AWAIT_RESTORE] = "restore"};
    return names[await];
}

/* Looks again: since_ms as above, and how far it is. */
void wait_note(struct wait *w, const struct wait *now_is, uint64_t now_ms);
/* Writes it to a trainer that waits. */
void wait_show(const struct wait *w, struct shared_status *shared);

#endif
