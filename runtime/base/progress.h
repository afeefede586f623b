/* SPDX-License-Identifier: Apache-2.0
 * Whether a piece of work that makes calls which may hang comes further. It is watched from another thread: while a
 * call is under way, the time since it last moved is the time that it hangs; while none is, it only waits for its turn.
 */
#ifndef TCK_BASE_PROGRESS_H
#define TCK_BASE_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Zeroes are a beginning. */
struct progress {
    _Atomic uint32_t calls;    /* under way */
    _Atomic uint64_t moved_ms; /* clock_ms */
};

/* A call for this work is made, and has returned: by any thread. NULL: the work is not watched. */
void progress_call(struct progress *p);
void progress_return(struct progress *p);

/* The same around calls that this thread makes, so that progress_moved tells of this work. */
void progress_begin(struct progress *p);
void progress_end(struct progress *p);
/* The work of this thread has made progress; harmless if it has none. */
void progress_moved(void);

/* True while a call is under way; since_ms_out: when the work last moved. */
bool progress_in_call(const struct progress *p, uint64_t *since_ms_out);

/* Has fn called with each progress_moved of this process, and each progress_end. To be set while there is one thread.
 */
void progress_watch(void (*fn)(void));

#endif
