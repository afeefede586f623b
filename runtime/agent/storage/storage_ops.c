/* SPDX-License-Identifier: Apache-2.0
 * Operations on storage, which may hang indefinitely. They never delay a new term: an operation that is in progress
 * when a term ends is left behind with that term's context, and its late result is ignored. Nor do they delay the
 * current term: an operation without progress for storage_timeout_ms is given up, and no new one is begun that would
 * hang as well. */
#include "agent/storage/storage_ops.h"

#include "agent/driver/term_context.h"
#include "agent/storage/health.h"
#include "base/clock.h"
#include "tiers/persistent.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct storage_ops {
    struct storage_ops_setup needs;
    struct storage_op *under_way;
    struct term_context *left; /* contexts whose term is over, but whose calls to storage have not ended */
};

tck_status_t storage_ops_new(const struct storage_ops_setup *setup, struct storage_ops **out, struct error *err)
{
    struct storage_ops *ops = calloc(1, sizeof(*ops));
    if (ops == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    ops->needs = *setup;
    *out = ops;
    return TCK_OK;
}

void storage_ops_free(struct storage_ops *ops)
{
    free(ops);
}

void storage_begin(struct storage_op *op, struct storage_ops *ops, struct term_context *tc)
{
    op->ops = ops;
    op->tc = tc;
    op->since_ms = clock_ms();
    op->late = false;
    op->paused = false;
    op->next = ops->under_way;
    ops->under_way = op;
    if (tc != NULL) {
        tc->storage_ops++;
    }
}

static void unlink_op(struct storage_op *op)
{
    struct storage_op **at = &op->ops->under_way;
    while (*at != op) {
        at = &(*at)->next;
    }
    *at = op->next;
}

static void free_if_left(struct storage_ops *ops, struct term_context *tc)
{
    struct term_context **at = &ops->left;
    while (*at != NULL && *at != tc) {
        at = &(*at)->next_left;
    }
    if (*at != NULL && tc->storage_ops == 0) {
        *at = tc->next_left;
        term_context_free(tc);
    }
}

void storage_end(struct storage_op *op)
{
    struct storage_ops *ops = op->ops;
    unlink_op(op);
    if (op->late) {
        struct error ignored;
        log_info("storage answers again: %s took %" PRIu64 " s", op->what, (clock_ms() - op->since_ms) / 1000);
        if (!storage_hangs(ops, NULL, &ignored)) {
            health_storage_works(ops->needs.health);
        }
    }
    if (op->tc != NULL) {
        op->tc->storage_ops--;
        free_if_left(ops, op->tc);
    }
}

void storage_pause(struct storage_op *op)
{
    op->paused = true;
}

void storage_resume(struct storage_op *op)
{
    op->paused = false;
    op->since_ms = clock_ms();
}

bool storage_ignored(const struct storage_op *op)
{
    return op->late || (op->tc != NULL && op->tc->closed);
}

void storage_leave(struct storage_ops *ops, struct term_context *tc)
{
    if (tc->storage_ops == 0) {
        term_context_free(tc);
        return;
    }
    log_warn("term %" PRIu64 " ends with %u calls to storage still under way; their results will be ignored",
             tc->world.term, tc->storage_ops);
    tc->next_left = ops->left;
    ops->left = tc;
}

void storage_leaving(struct storage_ops *ops, struct term_context *tc)
{
    struct storage_op *next;
    for (struct storage_op *op = tc != NULL ? ops->under_way : NULL; op != NULL; op = next) {
        next = op->next;
        if (op->tc == tc && op->left_behind != NULL) {
            op->left_behind(op->ctx);
        }
    }
}

bool storage_hangs(const struct storage_ops *ops, const char *what, struct error *err)
{
    const struct config *config = ops->needs.config;
    const struct storage_op *oldest = NULL;
    for (const struct storage_op *op = ops->under_way; op != NULL; op = op->next) {
        bool meant = op->late && (what == NULL || strcmp(op->what, what) == 0);
        if (meant && (oldest == NULL || op->since_ms < oldest->since_ms)) {
            oldest = op;
        }
    }
    if (oldest != NULL) {
        (void)error_set(err, TCK_ERR_TIMEDOUT, "%s/%s does not answer: %s has been under way for %" PRIu64 " s",
                        config->save_dir, config->job, oldest->what, (clock_ms() - oldest->since_ms) / 1000);
    }
    return oldest != NULL;
}

bool storage_oldest(const struct storage_ops *ops, uint64_t *count_out, uint64_t *since_ms_out)
{
    uint64_t count = 0, since_ms = UINT64_MAX;
    for (const struct storage_op *op = ops->under_way; op != NULL; op = op->next) {
        count++;
        since_ms = op->since_ms < since_ms ? op->since_ms : since_ms;
    }
    if (count > 0) {
        *count_out = count;
        *since_ms_out = since_ms;
    }
    return count > 0;
}

bool storage_is_idle(const struct storage_ops *ops)
{
    return ops->under_way == NULL;
}

bool storage_writes_slots(const struct storage_ops *ops)
{
    for (const struct storage_op *op = ops->under_way; op != NULL; op = op->next) {
        if (op->left_behind != NULL) {
            return true;
        }
    }
    return false;
}

/* Calls in progress of one operation, and when the one that moved last and the one that has waited longest moved. */
struct in_call {
    uint32_t count;
    uint64_t newest_ms, oldest_ms;
};

static void look_at_call(const struct progress *p, struct in_call *calls)
{
    uint64_t since_ms;
    if (progress_in_call(p, &since_ms)) {
        calls->newest_ms = calls->count == 0 || since_ms > calls->newest_ms ? since_ms : calls->newest_ms;
        calls->oldest_ms = calls->count == 0 || since_ms < calls->oldest_ms ? since_ms : calls->oldest_ms;
        calls->count++;
    }
}

/* Calls in progress are judged by their own progress: it hangs if none of them moves, or if one does not although it
 * has had the time of each that it shares storage with. An operation that is queued behind others does not count as
 * hanging while any of them makes progress. */
static bool has_hung(const struct storage_op *op, uint64_t now_ms)
{
    uint64_t timeout_ms = op->ops->needs.config->storage_timeout_ms;
    struct in_call calls = {0};
    look_at_call(&op->progress, &calls);
    for (uint32_t i = 0; i < op->part_count; i++) {
        look_at_call(&op->parts[i], &calls);
    }
    if (op->late || op->paused) {
        return false;
    }
    if (calls.count > 0) {
        return now_ms >= calls.newest_ms + timeout_ms || now_ms >= calls.oldest_ms + calls.count * timeout_ms;
    }
    uint64_t moved_ms = persistent_moved_ms(op->ops->needs.persistent);
    return now_ms >= (moved_ms > op->since_ms ? moved_ms : op->since_ms) + timeout_ms;
}

/* Returns one at a time, because give_up may end other operations or start new ones. */
static struct storage_op *next_hung(const struct storage_ops *ops)
{
    for (struct storage_op *op = ops->under_way; op != NULL; op = op->next) {
        if (has_hung(op, clock_ms())) {
            return op;
        }
    }
    return NULL;
}

void storage_tick(struct storage_ops *ops)
{
    const struct config *config = ops->needs.config;
    for (struct storage_op *op = next_hung(ops); op != NULL; op = next_hung(ops)) {
        struct error why;
        op->late = true;
        (void)error_set(&why, TCK_ERR_TIMEDOUT,
                        "%s/%s does not answer: %s has made no progress for %u ms (storage_timeout_ms)",
                        config->save_dir, config->job, op->what, config->storage_timeout_ms);
        log_error("%s", why.text);
        (void)pool_grow(op->pool != NULL ? op->pool
                                         : ops->needs.io); /* replaces the thread that may hang in the call */
        if (op->give_up != NULL && !(op->tc != NULL && op->tc->closed)) {
            op->give_up(op->ctx, &why);
        } else {
            health_storage_failed(ops->needs.health, 0, &why);
        }
    }
}
