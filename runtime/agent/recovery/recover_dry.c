/* SPDX-License-Identifier: Apache-2.0
 * Plans what a recovery would do now, for the command: with the inventories that arrive in time and the same planner,
 * but without carrying anything out. The plan assumes that lost nodes are replaced. */
#include "agent/recovery/recover_dry.h"

#include "agent/membership/reservation.h"
#include "agent/recovery/recover_internal.h"
#include "base/clock.h"

#include <stdlib.h>

void recover_dry_free(struct recoveries *rs)
{
    struct recover *r = rs->dry;
    if (r == NULL) {
        return;
    }
    struct error err;
    rs->dry = NULL;
    (void)error_set(&err, TCK_ERR_CANCELED, "a newer term has begun: try again");
    r->dry_fn(r->dry_ctx, NULL, &err);
    recover_destroy(r);
}

static json_t *make_plan(const struct recover *r, struct error *err)
{
    struct plan_input input = {.world = &r->tc->world,
                               .unused_terms = reservation_unused(r->all->needs.reservations, r->tc->world.term),
                               .placement = &r->tc->placement,
                               .inventory_count = r->inventory_count,
                               .inventories = r->inventories,
                               .storage = r->look.view,
                               .step = r->step};
    struct plan plan;
    if (plan_build(&input, &plan, err) != TCK_OK) {
        return NULL;
    }
    json_t *json = plan_json(&plan, &input);
    plan_free(&plan);
    if (json == NULL) {
        (void)error_set(err, TCK_ERR_NOMEM, "the plan could not be made: out of memory");
    }
    return json;
}

void recover_dry_tick(struct recoveries *rs)
{
    struct recover *r = rs->dry;
    bool waited = r != NULL && clock_ms() - r->started_ms >= rs->needs.config->restore_wait_ms;
    if (r == NULL || !r->listed || (!waited && !recover_all_answered(r))) {
        return;
    }
    struct error err;
    json_t *json = make_plan(r, &err);
    rs->dry = NULL;
    r->dry_fn(r->dry_ctx, json, json != NULL ? NULL : &err);
    recover_destroy(r);
}

static struct recover *dry_make(struct recoveries *rs, struct term_context *tc, uint64_t step, recover_plan_fn *fn,
                                void *ctx)
{
    struct recover *r = calloc(1, sizeof(*r));
    bool *answered = calloc(tc->world.node_count, sizeof(*answered));
    if (r == NULL || answered == NULL) {
        free(r);
        free(answered);
        return NULL;
    }
    r->all = rs;
    r->tc = tc;
    r->step = step;
    r->answered = answered;
    r->dry_fn = fn;
    r->dry_ctx = ctx;
    r->started_ms = clock_ms();
    return r;
}

void recover_plan_dry(struct recoveries *rs, struct term_context *tc, uint64_t step, recover_plan_fn *fn, void *ctx)
{
    struct error err;
    if (tc == NULL || tc->closed) {
        (void)error_set(&err, TCK_ERR_NOENT, "node %s has joined no term: nothing can be planned",
                        rs->needs.config->node);
    } else if (rs->dry != NULL) {
        (void)error_set(&err, TCK_ERR_BUSY, "another plan is being made");
    } else {
        rs->dry = dry_make(rs, tc, step, fn, ctx);
        if (rs->dry != NULL) {
            recover_ask_all(rs->dry);
            recover_list_storage(rs->dry, (struct survey_range){.newest = UINT32_MAX, .step = step});
            return;
        }
        (void)error_set(&err, TCK_ERR_NOMEM, "out of memory");
    }
    fn(ctx, NULL, &err);
}
