/* SPDX-License-Identifier: Apache-2.0
 * See awaited.h. */
#include "agent/state/awaited.h"

#include "base/message.h"

#include <stdatomic.h>

void wait_note(struct wait *w, const struct wait *now_is, uint64_t now_ms)
{
    bool moved = w->since_ms == 0 || now_is->done_bytes != w->done_bytes;
    uint64_t moved_ms = moved ? now_ms : w->moved_ms;
    *w = now_is->since_ms != 0 ? *now_is : (struct wait){0};
    w->moved_ms = now_is->since_ms != 0 ? moved_ms : 0;
}

void wait_show(const struct wait *w, struct shared_status *shared)
{
    atomic_store_explicit(&shared->work_done_bytes, w->done_bytes, memory_order_relaxed);
    atomic_store_explicit(&shared->work_total_bytes, w->total_bytes, memory_order_relaxed);
    atomic_store_explicit(&shared->work_moved_ms, w->moved_ms, memory_order_relaxed);
}
