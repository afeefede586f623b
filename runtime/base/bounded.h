/* SPDX-License-Identifier: Apache-2.0
 * Work that may hang, for callers who must not: a call to storage that hangs ends for no signal, so it is made in a
 * thread of its own, which can be left behind. */
#ifndef TCK_BASE_BOUNDED_H
#define TCK_BASE_BOUNDED_H

#include "base/status.h"

/* What the thread works on. It is the thread's until bounded_do returns TCK_OK, and for good if it returns an error:
 * then drop is called, by that thread once the work has ended, or at once if it was never begun. So the work touches
 * nothing but the job. */
struct bounded_work {
    void (*work)(void *job);
    void (*drop)(void *job);
    void *job;
};

/* TCK_OK: the work has ended, and the job is the caller's again. TCK_ERR_TIMEDOUT: it has not come further (progress.h)
 * for limit_ms and is left behind; the text says only this, so callers prefix what hangs. */
must_check tck_status_t bounded_do(const struct bounded_work *work, uint32_t limit_ms, struct error *err);

#endif
