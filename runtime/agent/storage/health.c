/* SPDX-License-Identifier: Apache-2.0
 * The trouble that this job has with storage: this node's own, and that of other nodes as the coordinator reports it.
 */
#include "agent/storage/health.h"

#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct health {
    struct trouble own; /* the coordinator reports its own to all nodes */
    struct trouble elsewhere;
    void (*changed)(void *ctx);
    void *ctx;
};

tck_status_t health_new(void (*changed)(void *ctx), void *ctx, struct health **out, struct error *err)
{
    struct health *h = calloc(1, sizeof(*h));
    if (h == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    h->changed = changed;
    h->ctx = ctx;
    *out = h;
    return TCK_OK;
}

void health_free(struct health *h)
{
    free(h);
}

/* This node's own trouble if it has any, otherwise the coordinator's. */
const struct trouble *health_storage(const struct health *h)
{
    return h->own.code != TCK_OK ? &h->own : &h->elsewhere;
}

const struct trouble *health_own(const struct health *h)
{
    return &h->own;
}

void health_storage_failed(struct health *h, uint64_t step, const struct error *why)
{
    trouble_add(&h->own, step, why, clock_wall_ms());
    h->changed(h->ctx);
}

static void own_has_ended(struct health *h)
{
    if (h->own.code != TCK_OK) {
        log_info("storage works again; %" PRIu64 " steps were not saved there", h->own.steps);
        h->own = (struct trouble){0};
        h->changed(h->ctx);
    }
}

/* Trouble that the coordinator has reported is over, too. Its heartbeat that announces the published version still
 * carries that trouble, because it is sent before the coordinator updates its own state, and a job may end before the
 * next heartbeat. */
void health_storage_published(struct health *h)
{
    own_has_ended(h);
    if (h->elsewhere.code != TCK_OK) {
        h->elsewhere = (struct trouble){0};
        h->changed(h->ctx);
    }
}

void health_storage_works(struct health *h)
{
    if (h->own.steps == 0) {
        own_has_ended(h);
    }
}

void health_handle_beat(struct health *h, const struct trouble *trouble)
{
    const struct trouble *known = &h->elsewhere;
    if (known->code != trouble->code || known->since_ms != trouble->since_ms ||
        known->first_step != trouble->first_step || known->newest_step != trouble->newest_step ||
        known->steps != trouble->steps || strcmp(known->text, trouble->text) != 0) {
        h->elsewhere = *trouble;
        h->changed(h->ctx);
    }
}

void health_term_began(struct health *h)
{
    h->elsewhere = (struct trouble){0};
    h->changed(h->ctx);
}
