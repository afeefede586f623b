/* SPDX-License-Identifier: Apache-2.0
 * Prevents trainers whose term is over from saving. Their shared status pages show it at once. A pool thread reads from
 * storage who has taken over the job, under the time limit of all calls to storage. */
#include "agent/membership/fence.h"

#include "agent/ipc/client.h"
#include "agent/storage/storage_ops.h"
#include "base/log.h"
#include "base/message.h"
#include "tiers/persistent.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct reading {
    struct storage_op storage;
    const struct fence_setup *fence;
    uint64_t term;
    tck_status_t status;
    struct error err;
    struct term_holders holders;
};

static void read_work(void *ctx)
{
    struct reading *r = ctx;
    progress_begin(&r->storage.progress);
    r->status = persistent_term_holders(r->fence->persistent, &r->holders, &r->err);
    progress_end(&r->storage.progress);
}

static const struct held_term *find(const struct term_holders *holders, uint64_t term)
{
    for (uint32_t i = 0; i < holders->count; i++) {
        if (holders->terms[i].term == term && holders->terms[i].holder.node[0] != '\0') {
            return &holders->terms[i];
        }
    }
    return NULL;
}

static void notify(struct client *c, const struct held_term *held)
{
    memcpy(c->shared->over_by.node, held->holder.node, sizeof(c->shared->over_by.node));
    c->shared->over_by.pid = held->holder.pid;
    c->shared->over_by.wall_ms = held->wall_ms;
    atomic_store_explicit(&c->shared->over_told, 1, memory_order_release);
}

/* Even a late result is reported to the trainers that still wait for it. */
static void read_done(void *ctx, bool canceled)
{
    struct reading *r = ctx;
    storage_end(&r->storage);
    const struct held_term *held = !canceled && r->status == TCK_OK ? find(&r->holders, r->term) : NULL;
    for (struct client *c = *r->fence->clients; held != NULL && c != NULL; c = c->next) {
        if (c->shared != NULL && atomic_load(&c->shared->over_term) == r->term &&
            atomic_load(&c->shared->over_told) == 0) {
            notify(c, held);
        }
    }
    term_holders_free(&r->holders);
    free(r);
}

static void read_claimer(const struct fence_setup *fence, uint64_t term)
{
    struct error err;
    if (storage_hangs(fence->storage_ops, NULL, &err)) {
        log_warn("cannot read who has claimed term %" PRIu64 ": %s", term, err.text);
        return;
    }
    struct reading *r = calloc(1, sizeof(*r));
    if (r != NULL) {
        *r = (struct reading){.fence = fence, .term = term};
    }
    if (r == NULL) {
        log_warn("out of memory: cannot read who has claimed term %" PRIu64, term);
        return;
    }
    r->storage = (struct storage_op){.what = "the read of a claim", .ctx = r};
    storage_begin(&r->storage, fence->storage_ops, NULL);
    if (pool_submit(fence->io, read_work, read_done, r) != TCK_OK) {
        log_warn("out of memory: cannot read who has claimed term %" PRIu64, term);
        storage_end(&r->storage);
        free(r);
    }
}

/* The same process may be joining the new term over another connection, and has abandoned this one. */
void fence_older(const struct fence_setup *fence, uint64_t term)
{
    bool any = false;
    for (struct client *c = *fence->clients; c != NULL; c = c->next) {
        if (c->trainer && c->shared != NULL && c->term != 0 && c->term < term &&
            atomic_load(&c->shared->over_term) == 0) {
            atomic_store_explicit(&c->shared->over_term, term, memory_order_release);
            log_warn("trainer of rank %u (pid %d) belongs to term %" PRIu64 ", which is over: its saves are refused",
                     c->rank, (int)c->process.pid, c->term);
            any = true;
        }
    }
    if (any) {
        read_claimer(fence, term);
    }
}
