/* SPDX-License-Identifier: Apache-2.0
 * See comparison.h. */
#include "agent/replication/comparison.h"

#include "agent/driver/protocol_driver.h"
#include "agent/driver/term_context.h"
#include "base/same_chunks.h"
#include "tiers/segment.h"

#include <stdlib.h>
#include <string.h>

#define PART_CHUNKS 16u /* compared in one job, for which checks and a registration may have to wait */

/* Of a slot with its base, for all copies of it that are to be offered. The base has a pin for it, and the slot those
 * of the copies that wait. */
struct comparison {
    struct comparison *next; /* in tc->comparisons */
    struct term_context *tc;
    struct pool *pool;
    uint32_t slot, base_slot, next_chunk;
    struct digested of_slot, of_base;
    uint64_t image_bytes;
    struct unchanged found; /* so far */
    struct compared_copy *waiting;
};

static void pin(struct term_context *tc, uint32_t slot, enum event_type type)
{
    struct event event = {.type = type, .slot = slot};
    driver_step_node(tc, &event);
}

static struct unchanged *unchanged_of(const struct term_context *tc, uint32_t slot)
{
    uint32_t k;
    return &term_context_slot(tc, slot, &k)->unchanged;
}

/* Whether this version was compared with this base; then the copy has the result, unless there is no memory for it. */
static bool take_compared(struct compared_copy *copy)
{
    const struct unchanged *u = unchanged_of(copy->tc, copy->slot);
    size_t len = bits_bytes(chunk_count(copy->item->image_bytes));
    bool known = version_is(u->version, copy->item->version) && version_is(u->base, copy->base->version) &&
                 hash128_is(u->root, copy->item->root) && hash128_is(u->base_root, copy->base->root);
    copy->same = known ? malloc(len) : NULL;
    if (copy->same != NULL) {
        memcpy(copy->same, u->same, len);
        copy->base->same = copy->same;
        copy->same_bytes = u->bytes;
    }
    return known;
}

static void comparison_end(struct comparison *c)
{
    struct comparison **at = &c->tc->comparisons;
    while (*at != c) {
        at = &(*at)->next;
    }
    *at = c->next;
    pin(c->tc, c->base_slot, EVENT_UNPIN);
    free(c->found.same);
    free(c);
}

/* Its term or version may be over, and its node may be lost. */
static bool is_wanted(const struct compared_copy *copy)
{
    return !copy->tc->closed && copy->tc->peers[copy->node] != NULL &&
           node_copy_wanted(copy->tc->node, copy->slot, copy->node);
}

/* Ends the copies that are not wanted any more. Others may begin to wait when these have ended. */
static void end_unwanted(struct comparison *c, bool all)
{
    struct compared_copy *unwanted = NULL, **at = &c->waiting;
    while (*at != NULL) {
        struct compared_copy *copy = *at;
        if (!all && is_wanted(copy)) {
            progress_queued(copy->item->progress);
            at = &copy->next;
        } else {
            *at = copy->next;
            copy->next = unwanted;
            unwanted = copy;
        }
    }
    while (unwanted != NULL) {
        struct compared_copy *copy = unwanted;
        unwanted = copy->next;
        copy->done(copy, false);
    }
}

static void compare_work(void *ctx)
{
    struct comparison *c = ctx;
    c->found.bytes += same_chunks(&c->of_slot, &c->of_base, c->image_bytes, c->next_chunk, PART_CHUNKS, c->found.same);
}

static void end_compared(struct comparison *c)
{
    struct compared_copy *waiting = c->waiting;
    struct unchanged *u = unchanged_of(c->tc, c->slot);
    free(u->same);
    *u = c->found;
    c->found.same = NULL;
    for (struct compared_copy *copy = waiting; copy != NULL; copy = copy->next) {
        (void)take_compared(copy);
    }
    comparison_end(c);
    while (waiting != NULL) {
        struct compared_copy *copy = waiting;
        waiting = copy->next;
        copy->done(copy, is_wanted(copy)); /* what another one did may have ended its version */
    }
}

/* If the next part cannot be submitted, the rest counts as changed. */
static void compare_done(void *ctx, bool canceled)
{
    struct comparison *c = ctx;
    c->next_chunk += PART_CHUNKS;
    end_unwanted(c, canceled);
    bool more = c->next_chunk < chunk_count(c->image_bytes);
    if (c->waiting == NULL) {
        comparison_end(c);
    } else if (!more || pool_submit(c->pool, compare_work, compare_done, c) != TCK_OK) {
        end_compared(c);
    }
}

/* NULL if the copy can be offered at once: without memory, or if the tables of CRCs say that everything has changed. */
static struct comparison *comparison_begin(const struct compared_copy *copy, uint32_t base_slot, struct pool *pool)
{
    struct term_context *tc = copy->tc;
    uint32_t k;
    const struct local_shard *d = term_context_slot(tc, base_slot, &k);
    const struct digested of_slot = {copy->item->image, copy->item->crcs};
    const struct digested of_base = {segment_image(d->segment, k), segment_crcs(d->segment, k)};
    if (!same_chunks_possible(&of_slot, &of_base, copy->item->image_bytes)) {
        return NULL;
    }
    struct comparison *c = calloc(1, sizeof(*c));
    uint8_t *same = calloc(bits_bytes(chunk_count(copy->item->image_bytes)), 1);
    if (c != NULL) {
        *c = (struct comparison){.next = tc->comparisons,
                                 .tc = tc,
                                 .pool = pool,
                                 .slot = copy->slot,
                                 .base_slot = base_slot,
                                 .of_slot = of_slot,
                                 .of_base = of_base,
                                 .image_bytes = copy->item->image_bytes,
                                 .found = {.version = copy->item->version,
                                           .base = copy->base->version,
                                           .root = copy->item->root,
                                           .base_root = copy->base->root,
                                           .same = same}};
    }
    if (c == NULL || same == NULL || pool_submit(pool, compare_work, compare_done, c) != TCK_OK) {
        free(same);
        free(c);
        return NULL;
    }
    tc->comparisons = c;
    pin(tc, base_slot, EVENT_PIN);
    return c;
}

bool comparison_wait(struct compared_copy *copy, uint32_t base_slot, struct pool *pool)
{
    const struct slot *base = node_slot(copy->tc->node, base_slot);
    *copy->base = (struct tier_base){.version = base->version, .root = base->root};
    if (copy->tc->peers[copy->node] == NULL || take_compared(copy)) {
        return false;
    }
    struct comparison *c = copy->tc->comparisons;
    while (c != NULL && (c->slot != copy->slot || c->base_slot != base_slot)) {
        c = c->next;
    }
    c = c != NULL ? c : comparison_begin(copy, base_slot, pool);
    if (c != NULL) {
        copy->next = c->waiting;
        c->waiting = copy;
    }
    return c != NULL;
}
