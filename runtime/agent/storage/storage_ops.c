/* SPDX-License-Identifier: Apache-2.0
 * Work on storage, which may hang for any time. It never holds up a term: what is under way when one ends is left
 * behind with the term context that it was begun in, and its late result is ignored. Nor does it hold up a
 * term that lasts: what has not moved for storage_timeout_ms is given up, and nothing new is begun that would only
 * hang, too. */
#include "agent/storage/storage_ops.h"

#include "agent/driver/term_context.h"
#include "agent/storage/health.h"
#include "base/clock.h"

#include <inttypes.h>
#include <string.h>

void storage_begin(struct storage_op *op, struct agent *agent, struct term_context *tc)
{
    op->agent = agent;
    op->tc = tc;
    op->since_ms = clock_ms();
    op->late = false;
    op->next = agent->storage;
    agent->storage = op;
    if (tc) {
        tc->storage_ops++;
    }
}

static void unlink_op(struct storage_op *op)
{
    struct storage_op **at = &op->agent->storage;
    while (*at != op) {
        at = &(*at)->next;
    }
    *at = op->next;
}

static void free_if_left(struct agent *agent, struct term_context *tc)
{
    struct term_context **at = &agent->left;
    while (*at && *at != tc) {
        at = &(*at)->next_left;
    }
    if (*at && tc->storage_ops == 0) {
        *at = tc->next_left;
        term_context_free(tc);
    }
}

void storage_end(struct storage_op *op)
{
    struct agent *agent = op->agent;
    unlink_op(op);
    if (op->late) {
        struct error ignored;
        log_info("storage answers again: %s took %" PRIu64 " s", op->what, (clock_ms() - op->since_ms) / 1000);
        if (!storage_hangs(agent, NULL, &ignored)) {
            health_storage_works(agent);
        }
    }
    if (op->tc) {
        op->tc->storage_ops--;
        free_if_left(agent, op->tc);
    }
}

bool storage_ignored(const struct storage_op *op)
{
    return op->late || (op->tc && op->tc->closed);
}

void storage_leave(struct term_context *tc)
{
    struct agent *agent = tc->agent;
    if (tc->storage_ops == 0) {
        term_context_free(tc);
        return;
    }
    log_warn("term %" PRIu64 " ends with %u calls to storage still under way; their results will be ignored",
             tc->world.term, tc->storage_ops);
    tc->next_left = agent->left;
    agent->left = tc;
}

void storage_leaving(struct term_context *tc)
{
    struct storage_op *next;
    for (struct storage_op *op = tc ? tc->agent->storage : NULL; op; op = next) {
        next = op->next;
        if (op->tc == tc && op->left_behind) {
            op->left_behind(op->ctx);
        }
    }
}

bool storage_hangs(const struct agent *agent, const char *what, struct error *err)
{
    const struct storage_op *oldest = NULL;
    for (const struct storage_op *op = agent->storage; op; op = op->next) {
        bool meant = op->late && (!what || strcmp(op->what, what) == 0);
        if (meant && (!oldest || op->since_ms < oldest->since_ms)) {
            oldest = op;
        }
    }
    if (oldest) {
        (void)error_set(err, TCK_ERR_TIMEDOUT, "%s/%s does not answer: %s has been under way for %" PRIu64 " s",
                        agent->config.save_dir, agent->config.job, oldest->what,
                        (clock_ms() - oldest->since_ms) / 1000);
    }
    return oldest != NULL;
}

/* A call under way is judged by its own progress. One that is queued behind others does not hang as long as any of them
 * makes progress. */
static bool has_hung(const struct storage_op *op, uint64_t now_ms)
{
    uint64_t since_ms = op->since_ms;
    if (!progress_in_call(&op->progress, &since_ms)) {
        uint64_t moved_ms = persistent_moved_ms(op->agent->persistent);
        since_ms = moved_ms > since_ms ? moved_ms : since_ms;
    }
    return !op->late && now_ms >= since_ms + op->agent->config.storage_timeout_ms;
}

/* One at a time: give_up may end other operations, or start some. */
static struct storage_op *next_hung(struct agent *agent)
{
    for (struct storage_op *op = agent->storage; op; op = op->next) {
        if (has_hung(op, clock_ms())) {
            return op;
        }
    }
    return NULL;
}

void storage_tick(struct agent *agent)
{
    for (struct storage_op *op = next_hung(agent); op; op = next_hung(agent)) {
        struct error why;
        op->late = true;
        (void)error_set(&why, TCK_ERR_TIMEDOUT,
                        "%s/%s does not answer: %s has not moved for %u ms (storage_timeout_ms)",
                        agent->config.save_dir, agent->config.job, op->what, agent->config.storage_timeout_ms);
        log_error("%s", why.text);
        (void)pool_grow(op->pool ? op->pool : agent->io); /* replaces the thread that may hang in the call */
        if (op->give_up && !(op->tc && op->tc->closed)) {
            op->give_up(op->ctx, &why);
        } else {
            health_storage_failed(agent, 0, &why);
        }
    }
}
