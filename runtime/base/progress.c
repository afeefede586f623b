/* SPDX-License-Identifier: Apache-2.0
 * See progress.h. */
#include "base/progress.h"

#include "base/clock.h"

#include <stddef.h>

static _Thread_local struct progress *current;
static void (*watcher)(void);

static void stamp(struct progress *p)
{
    atomic_store_explicit(&p->moved_ms, clock_ms(), memory_order_relaxed);
}

void progress_call(struct progress *p)
{
    if (p != NULL) {
        stamp(p);
        atomic_fetch_add(&p->calls, 1);
    }
}

void progress_return(struct progress *p)
{
    if (p != NULL) {
        stamp(p);
        atomic_fetch_sub(&p->calls, 1);
    }
}

void progress_begin(struct progress *p)
{
    current = p;
    progress_call(p);
}

void progress_end(struct progress *p)
{
    current = NULL;
    progress_return(p);
    if (watcher != NULL) {
        watcher();
    }
}

void progress_add(struct progress *p, uint64_t bytes)
{
    if (p != NULL) {
        atomic_fetch_add_explicit(&p->bytes, bytes, memory_order_relaxed);
    }
}

void progress_queued(struct progress *p)
{
    if (p != NULL) {
        stamp(p);
    }
}

void progress_moved(void)
{
    if (current != NULL) {
        stamp(current);
    }
    if (watcher != NULL) {
        watcher();
    }
}

bool progress_in_call(const struct progress *p, uint64_t *since_ms_out)
{
    if (atomic_load(&p->calls) == 0) {
        return false;
    }
    *since_ms_out = atomic_load_explicit(&p->moved_ms, memory_order_relaxed);
    return true;
}

void progress_watch(void (*fn)(void))
{
    watcher = fn;
}
