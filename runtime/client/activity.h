/* SPDX-License-Identifier: Apache-2.0
 * How far a register or a restore is: written by the thread that is in the call, read by any other. */
#ifndef TCK_CLIENT_ACTIVITY_H
#define TCK_CLIENT_ACTIVITY_H

#include "tierckpt.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct shared_status;

struct activity {
    pthread_mutex_t lock; /* of all below, except as noted */
    const char *call;     /* NULL: none is under way */
    const char *what;
    uint64_t begun_ms, moved_ms; /* clock_ms */
    _Atomic uint64_t done_bytes; /* without the lock */
    uint64_t total_bytes, seen_bytes;
    const struct shared_status *shared; /* the agent works, and its figures are there; NULL: they are here */
    bool shown;                         /* as configured */
    bool logged;                        /* a thread logs what is under way: */
    bool over;
    pthread_cond_t ends;
    pthread_t logger;
};

void activity_init(struct activity *a);
void activity_free(struct activity *a);

/* A call begins. logged: it is logged if it takes long. */
void activity_begin(struct activity *a, const char *call, bool shown, bool logged);
void activity_end(struct activity *a);
/* The call goes on with this, which is so many bytes; 0: not known, or none. Nothing happens outside a call. */
void activity_phase(struct activity *a, const char *what, uint64_t total_bytes);
/* The same where the agent works. The page must be there until the next phase. */
void activity_of_agent(struct activity *a, const char *what, const struct shared_status *shared);
void activity_add(struct activity *a, uint64_t bytes);

/* False: no call is under way. */
bool activity_look(struct activity *a, tck_progress_t *out);
/* In words; bytes_per_second: 0 if it is not known. */
void activity_text(const tck_progress_t *progress, double bytes_per_second, char *out, size_t cap);

#endif
