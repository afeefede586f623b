/* SPDX-License-Identifier: Apache-2.0
 * Work that may hang, for callers that must not. No signal ends a call to storage that hangs, so the call is made in
 * a thread of its own, which can be abandoned. */
#ifndef TCK_BASE_BOUNDED_H
#define TCK_BASE_BOUNDED_H

#include "base/status.h"

/* What the thread works on. The thread owns it until bounded_do returns TCK_OK. If bounded_do returns an error, the
 * caller never gets it back: drop is called, by that thread once the work has ended, or at once if the work was
 * never started. So the work may touch nothing but the job. */
struct bounded_work {
    void (*work)(void *job);
    void (*drop)(void *job);
    void *job;
};

/* TCK_OK: the work has ended, and the caller owns the job again. TCK_ERR_TIMEDOUT: the work has made no progress
 * (progress.h) for limit_ms and is abandoned; the text says only this, so callers prefix it with what hangs. */
must_check tck_status_t bounded_do(const struct bounded_work *work, uint32_t limit_ms, struct error *err);

#endif
