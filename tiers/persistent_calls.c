/* SPDX-License-Identifier: Apache-2.0
 * Common to all calls of the persistent tier: recording storage's progress, and references to what they use. */
#include "tiers/persistent_impl.h"

#include "base/clock.h"
#include "tiers/clone_past.h"
#include "tiers/index_kept.h"
#include "tiers/object_kept.h"
#include <stdlib.h>

uint64_t persistent_moved_ms(const struct persistent *p)
{
    return atomic_load_explicit(&p->moved_ms, memory_order_relaxed);
}

void persistent_moved(struct persistent *p)
{
    atomic_store_explicit(&p->moved_ms, clock_ms(), memory_order_relaxed);
    progress_moved();
}

void persistent_came_further(const struct persistent *p)
{
    progress_moved();
    if (p->moved != NULL) {
        p->moved(p->moved_ctx);
    }
}

void persistent_ref(struct persistent *p)
{
    p->refs++;
}

void persistent_unref(struct persistent *p)
{
    if (--p->refs > 0) {
        return;
    }
    index_kept_drop(p->index);
    clone_past_free(p->clones.past);
    kept_free(p->kept); /* their uploads are aborted by the next term's coordinator */
    audit_free(p->audit);
    folder_close(&p->second);
    folder_close(&p->job);
    pthread_mutex_destroy(&p->puts_lock);
    pthread_mutex_destroy(&p->versions_lock);
    pthread_mutex_destroy(&p->second_lock);
    if (p->second_store != NULL) {
        p->second_store->ops->free(p->second_store);
    }
    free(p);
}

void persistent_run_last(struct persistent *p, pool_work_fn *work, pool_done_fn *done, void *ctx)
{
    if (p->closing || pool_submit(p->pool, work, done, ctx) != TCK_OK) {
        work(ctx);
        done(ctx, false);
    }
}
