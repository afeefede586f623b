/* SPDX-License-Identifier: Apache-2.0
 * See object_transfer.h. */
#include "tiers/object_transfer.h"

#include <stdlib.h>

struct step {
    struct transfer *t;
    uint32_t i;
    struct error outcome;
};

static void go_on(struct transfer *t);

static void step_work(void *ctx)
{
    struct step *step = ctx;
    progress_begin(step->t->progress);
    step->outcome.code = step->t->step(step->t, step->i, &step->outcome);
    progress_end(step->t->progress);
}

static void step_done(void *ctx, bool canceled)
{
    struct step *step = ctx;
    struct transfer *t = step->t;
    persistent_moved(t->p);
    if (canceled) {
        (void)error_set(&step->outcome, TCK_ERR_CANCELED, "the persistent tier is closing");
    }
    t->running--;
    if (step->outcome.code == TCK_OK && t->stepped != NULL) {
        t->stepped(t, step->i);
    }
    if (t->outcome.code == TCK_OK) {
        t->outcome = step->outcome;
    }
    free(step);
    go_on(t);
}

static tck_status_t step_begin(struct transfer *t, struct error *err)
{
    struct step *step = calloc(1, sizeof(*step));
    if (step == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a transfer");
    }
    *step = (struct step){.t = t, .i = t->next};
    tck_status_t status = pool_submit(t->p->transfers, step_work, step_done, step);
    if (status != TCK_OK) {
        free(step);
        return error_set(err, status, "start a transfer");
    }
    t->next++;
    t->running++;
    return TCK_OK;
}

static bool is_over(const struct transfer *t)
{
    return t->p->closing || (t->given_up != NULL && t->given_up(t));
}

/* In portions of the size that other tiers send at once: the pace may never let a larger one pass. */
static bool take(struct transfer *t)
{
    const struct tier_pace *pace = &t->p->pace;
    uint64_t bytes = t->bytes == NULL || pace->take == NULL ? 0 : t->bytes(t, t->next);
    while (t->paid < bytes) {
        uint64_t portion = bytes - t->paid < CHUNK_BYTES ? bytes - t->paid : CHUNK_BYTES;
        if (!pace->take(pace->ctx, portion)) {
            return false;
        }
        t->paid += portion;
    }
    t->paid = 0;
    return true;
}

/* Whether the next step may be sent now; if not, it waits for transfers_resume. */
static bool may_send(struct transfer *t)
{
    if (take(t)) {
        return true;
    }
    persistent_moved(t->p); /* it waits for its turn, and not for storage */
    t->throttled = true;
    t->next_throttled = t->p->throttled;
    t->p->throttled = t;
    return false;
}

static bool begins_another(const struct transfer *t)
{
    return t->outcome.code == TCK_OK && !t->throttled && t->next < t->count && t->running < t->width;
}

static void begin_steps(struct transfer *t)
{
    while (begins_another(t)) {
        if (is_over(t)) {
            (void)error_set(&t->outcome, TCK_ERR_CANCELED, "given up, or the persistent tier is closing");
        } else if (may_send(t)) {
            t->outcome.code = step_begin(t, &t->outcome);
        }
    }
}

static void go_on(struct transfer *t)
{
    begin_steps(t);
    if (t->running == 0 && !t->throttled) {
        t->ended(t);
    }
}

tck_status_t transfer_start(struct transfer *t, struct error *err)
{
    if (t->count == 0) {
        return error_set(err, TCK_ERR_INVAL, "a transfer of nothing");
    }
    t->outcome = (struct error){.code = TCK_OK};
    t->next = t->running = 0;
    t->paid = 0;
    begin_steps(t);
    if (t->running == 0 && !t->throttled) {
        return error_set(err, t->outcome.code, "%s", t->outcome.text);
    }
    return TCK_OK;
}

void transfers_resume(struct persistent *p)
{
    struct transfer *t = p->throttled;
    p->throttled = NULL;
    while (t != NULL) {
        struct transfer *next = t->next_throttled;
        t->throttled = false;
        go_on(t);
        t = next;
    }
}
