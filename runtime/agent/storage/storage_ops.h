/* SPDX-License-Identifier: Apache-2.0
 * Operations on storage, which may hang indefinitely. Each part that calls storage begins an operation before the call
 * and ends it afterwards. An operation that hangs is given up and reported to health.h, and a term that ends leaves
 * behind the operations that have not ended. */
#ifndef TCK_AGENT_STORAGE_OPS_H
#define TCK_AGENT_STORAGE_OPS_H

#include "base/config.h"
#include "base/progress.h"
#include "base/status.h"

struct health;
struct persistent;
struct pool;
struct storage_ops;
struct term_context;

/* A call to storage, or several in sequence; embedded in its user's struct, which must exist until storage_end. */
struct storage_op {
    struct storage_op *next;
    struct storage_ops *ops;
    struct term_context *tc; /* kept alive until the operation ends; NULL: none needed */
    struct pool *pool;       /* where it runs; NULL: io */
    const char *what;        /* for errors */
    uint64_t since_ms;
    struct progress progress;     /* of its own calls; the operation may be queued while none is in progress */
    const struct progress *parts; /* of calls for parts of it that are under way at once; NULL: it has none */
    uint32_t part_count;
    bool late;   /* it hangs and has timed out */
    bool paused; /* it waits for something else than storage */
    /* Either may be NULL. Called when it times out within its term, so that waiters get the error. */
    void (*give_up)(void *ctx, const struct error *why);
    /* Called when another term is about to take over all slots: storage must no longer write into them. */
    void (*left_behind)(void *ctx);
    void *ctx;
};

/* Dependencies. */
struct storage_ops_setup {
    const struct config *config;
    struct pool *io; /* gets an additional thread for each call that may hang */
    const struct persistent *persistent;
    struct health *health;
};

must_check tck_status_t storage_ops_new(const struct storage_ops_setup *setup, struct storage_ops **out,
                                        struct error *err);
void storage_ops_free(struct storage_ops *ops);
/* The caller has set what, ctx and, if needed, give_up and left_behind in op. */
void storage_begin(struct storage_op *op, struct storage_ops *ops, struct term_context *tc);
/* The calls have ended. op->tc may be freed when this returns. */
void storage_end(struct storage_op *op);
/* It waits for something else before its next call, so it cannot hang; then it has the whole time again. */
void storage_pause(struct storage_op *op);
void storage_resume(struct storage_op *op);
/* True if it timed out, or its term is over: its results must change nothing. */
bool storage_ignored(const struct storage_op *op);
/* storage_leaving: tc is about to be replaced. storage_leave: it was replaced, and is freed now or when its last call
 * ends. */
void storage_leaving(struct storage_ops *ops, struct term_context *tc);
void storage_leave(struct storage_ops *ops, struct term_context *tc);
/* True if an operation that timed out (of this kind; NULL: any) has not ended: another one would hang, too. */
bool storage_hangs(const struct storage_ops *ops, const char *what, struct error *err);
/* How many are in progress, and since when the oldest one is; false if there is none. */
bool storage_oldest(const struct storage_ops *ops, uint64_t *count_out, uint64_t *since_ms_out);
/* True if no operation is in progress. */
bool storage_is_idle(const struct storage_ops *ops);
/* True if a call that writes into slots is in progress, even one of an earlier term. */
bool storage_writes_slots(const struct storage_ops *ops);
/* Gives up operations that hang. */
void storage_tick(struct storage_ops *ops);

#endif
