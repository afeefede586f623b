/* SPDX-License-Identifier: Apache-2.0
 * Whether work whose calls may hang makes progress. It is watched from another thread: while a call is under way, the
 * time since the last progress is the time that it has been hanging; while none is, the work only waits for its turn.
 */
#ifndef TCK_BASE_PROGRESS_H
#define TCK_BASE_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Zeroed: no call was made yet. */
struct progress {
    _Atomic uint32_t calls;    /* under way */
    _Atomic uint64_t moved_ms; /* clock_ms; of work that is queued: when that before it moved last */
    _Atomic uint64_t bytes;    /* that have arrived, or have been digested, sent or copied from a base, so far */
};

/* A call for this work begins, and has returned. May be called by any thread. NULL: the work is not watched. */
void progress_call(struct progress *p);
void progress_return(struct progress *p);

/* The same around calls that this thread makes; progress_moved then refers to this work. */
void progress_begin(struct progress *p);
void progress_end(struct progress *p);
/* So many more bytes have arrived, or have been digested, sent or copied from a base. May be called by any thread.
 * NULL: the work is not watched. */
void progress_add(struct progress *p, uint64_t bytes);
/* The work waits for other work, which has moved: what is before it, or a comparison that it needs. NULL: the work is
 * not watched. */
void progress_queued(struct progress *p);
/* The work of this thread has made progress; harmless if it has none. */
void progress_moved(void);

/* True while a call is under way; since_ms_out: when the work last moved. */
bool progress_in_call(const struct progress *p, uint64_t *since_ms_out);

/* From now on, fn is called at each progress_moved and progress_end of this process. Call it while there is only one
 * thread. */
void progress_watch(void (*fn)(void));

#endif
