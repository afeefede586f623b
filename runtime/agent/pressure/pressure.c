/* SPDX-License-Identifier: Apache-2.0
 * Looks at the memory a few times each second, and gives back or takes back one slot at a time, so that each is decided
 * by what the one before has changed. */
#include "agent/pressure/pressure.h"

#include "agent/driver/missing_copies.h"
#include "agent/driver/protocol_driver.h"
#include "agent/driver/slot_ops.h"
#include "agent/driver/term_context.h"
#include "agent/replication/fetch.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/pool.h"
#include "core/node_pressure.h"
#include "tiers/memory.h"
#include "tiers/memory_watch.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS      250
#define TRY_AGAIN_MS 10000 /* after pages could not be removed or allocated */

/* The slot that a pool thread works on. */
struct work {
    struct segment *segment;
    uint32_t k;
    uint32_t threads;
    bool giving;
    bool stored_here; /* a trainer of this node fills the slot */
    struct error outcome;
};

struct pressure {
    struct pressure_setup needs;
    struct memory_watch *watch; /* NULL: it is switched off */
    struct loop_timer *timer;
    struct memory_watch_state state;
    uint64_t reserve_bytes;
    char of[MEMORY_OF_BYTES];
    uint64_t since_ms;
    bool suspended; /* saving, as it was logged */
    bool busy;
    struct work work;
    uint64_t pause_until_ms;
    struct log_limit failed;
};

/* ---- the level ----------------------------------------------------------------------------------------------- */

static void log_level(const struct pressure *p, enum memory_level before)
{
    const char *least = p->of;
    uint64_t left_mib = p->state.before.available_bytes >> 20, reserve_mib = p->reserve_bytes >> 20;
    if (p->state.level == MEMORY_ENOUGH) {
        log_info("memory is enough again: %s has %" PRIu64 " MiB left. What was given back is used again", least,
                 left_mib);
    } else if (p->state.level > before) {
        log_warn(
            "memory is %s: %s has %" PRIu64 " MiB left, %" PRIu64
            " MiB should be (memory_reserve_bytes). Slots are given back until it has: tierckpt status shows which",
            memory_level_name(p->state.level), least, left_mib, reserve_mib);
    } else {
        log_info("memory is only %s now: %s has %" PRIu64 " MiB left", memory_level_name(p->state.level), least,
                 left_mib);
    }
}

static void look(struct pressure *p)
{
    enum memory_level before = p->state.level;
    struct memory_figures figures = memory_watch_read(p->watch, p->of);
    p->reserve_bytes = memory_reserve(&figures, p->needs.config->memory_reserve_bytes);
    memory_level_take(&p->state, &figures, p->reserve_bytes, clock_ms());
    if (p->state.level != before) {
        p->since_ms = clock_wall_ms();
        log_level(p, before);
    }
}

/* The term whose slots may be touched now; NULL: none. */
static struct term_context *usable_term(const struct pressure *p)
{
    struct term_context *tc = *p->needs.term;
    bool usable = tc != NULL && !tc->closed && slot_ops_memory(p->needs.slot_ops) == MEMORY_STEADY;
    return usable && !*p->needs.leaving ? tc : NULL;
}

static void log_suspended(struct pressure *p, const struct term_context *tc)
{
    bool suspended = node_saving_suspended(tc->node);
    if (suspended && !p->suspended) {
        log_warn("saving is suspended: memory on this node is short, and the slots that a save needs were given back. "
                 "No node saves a version until it has memory again: free memory here (%s), raise its limit, or give "
                 "the job fewer slots",
                 p->of);
    } else if (!suspended && p->suspended) {
        log_info("saving goes on: the slots that it needs are there again");
    }
    p->suspended = suspended;
}

/* ---- one slot ------------------------------------------------------------------------------------------------ */

static void act(struct pressure *p);

static void work(void *ctx)
{
    struct work *w = ctx;
    w->outcome.code = w->giving ? segment_give_back(w->segment, w->k, w->stored_here, &w->outcome)
                                : segment_take_back(w->segment, w->k, w->threads, &w->outcome);
}

/* The number of the slot in the node machine, NONE32 if it is not there. */
static uint32_t slot_number(const struct term_context *tc, const struct segment *segment, uint32_t k)
{
    uint32_t shard = tc != NULL ? term_context_shard(tc, segment_info(segment).shard) : NONE32;
    return shard == NONE32 ? NONE32 : tc->local_shards[shard].first_slot + k;
}

static void taken_back(const struct pressure *p, const struct work *w)
{
    struct term_context *tc = *p->needs.term;
    struct event event = {.type = EVENT_TAKE_BACK, .slot = slot_number(tc, w->segment, w->k)};
    segment_set_given_back(w->segment, w->k, false);
    log_info("a slot of %" PRIu64 " bytes that was given back is used again", segment_info(w->segment).slot_stride);
    if (event.slot != NONE32) {
        driver_step_node(tc, &event); /* if the term is over, the next one finds the slot as it is now */
    }
}

static void work_done(void *ctx, bool canceled)
{
    struct work *w = ctx;
    struct pressure *p = (struct pressure *)((char *)w - offsetof(struct pressure, work));
    p->busy = false;
    if (!canceled && w->outcome.code == TCK_OK && !w->giving) {
        taken_back(p, w);
    } else if (!canceled && w->outcome.code != TCK_OK && w->outcome.code != TCK_ERR_BUSY) {
        p->pause_until_ms = clock_ms() + TRY_AGAIN_MS;
        if (log_limit_pass(&p->failed)) {
            log_warn("a slot could not be %s: %s", w->giving ? "given back" : "taken back", w->outcome.text);
        }
    }
    slot_op_end(p->needs.slot_ops);
    if (!canceled && !*p->needs.leaving && p->watch != NULL) {
        look(p);
        act(p);
    }
}

static void submit(struct pressure *p, const struct term_context *tc, uint32_t slot, bool giving)
{
    uint32_t k;
    struct segment *segment = term_context_slot(tc, slot, &k)->segment;
    bool stored_here = tc->shards[node_slot(tc->node, slot)->shard].storing_rank != NONE32;
    p->work = (struct work){
        .segment = segment, .k = k, .threads = p->needs.threads, .giving = giving, .stored_here = stored_here};
    p->busy = true;
    slot_op_begin(p->needs.slot_ops);
    if (pool_submit(p->needs.pool, work, work_done, &p->work) != TCK_OK) {
        p->busy = false;
        slot_op_end(p->needs.slot_ops);
    }
}

/* ---- giving back --------------------------------------------------------------------------------------------- */

static bool is_fixed(const struct term_context *tc, uint32_t shard)
{
    return tc->local_shards[shard].gone ||
           !segment_can_give_back(tc->local_shards[shard].segment, tc->shards[shard].storing_rank != NONE32);
}

/* The next slot to be given back, NONE32 if none. */
static uint32_t next_to_give(const struct term_context *tc, enum memory_level level)
{
    uint32_t count = tc->setup.shard_count;
    bool *fixed = calloc(count ? count : 1, sizeof(*fixed));
    if (fixed == NULL) {
        return NONE32; /* it is tried again soon */
    }
    const struct give_back_limits limits = {.level = level, .alone = tc->lost_count > 0, .fixed = fixed};
    uint32_t slot = node_give_back_next(tc->node, &limits);
    if (slot != NONE32) { /* the kernel is asked only if there is something to give */
        for (uint32_t i = 0; i < count; i++) {
            fixed[i] = is_fixed(tc, i);
        }
        slot = node_give_back_next(tc->node, &limits);
    }
    free(fixed);
    return slot;
}

/* A slot that was given back and has pages again, because a trainer has mapped the segment since; NONE32 if none. */
static uint32_t next_with_pages(const struct term_context *tc)
{
    for (uint32_t i = 0; i < node_slot_total(tc->node); i++) {
        uint32_t k;
        const struct slot *slot = node_slot(tc->node, i);
        const struct local_shard *d = slot->withheld ? term_context_slot(tc, i, &k) : NULL;
        if (d != NULL && !is_fixed(tc, slot->shard) && segment_has_pages(d->segment, k)) {
            return i;
        }
    }
    return NONE32;
}

static void log_given(const struct term_context *tc, uint32_t slot, enum give_back step, struct version version)
{
    const struct local_shard *d = &tc->local_shards[node_slot(tc->node, slot)->shard];
    uint64_t bytes = segment_info(d->segment).slot_stride;
    if (version_none(version)) {
        log_info("gave back %s: %" PRIu64 " bytes", give_back_text(step), bytes);
    } else {
        log_warn("gave back %s: %" PRIu64 " bytes of version %" PRIu64 ".%" PRIu64, give_back_text(step), bytes,
                 version.term, version.step);
    }
}

/* Gives the next slot back; false: there is none. With enough memory it is one that this node does not use. */
static bool give(struct pressure *p, struct term_context *tc, enum memory_level level)
{
    uint32_t k, slot = level != MEMORY_ENOUGH ? next_with_pages(tc) : NONE32;
    if (slot == NONE32) {
        slot = next_to_give(tc, level);
        if (slot == NONE32) {
            return false;
        }
        struct event event = {.type = EVENT_GIVE_BACK, .slot = slot};
        enum give_back step = node_give_back_step(tc->node, slot);
        struct version version = node_slot(tc->node, slot)->version;
        driver_step_node(tc, &event);
        if (!node_slot(tc->node, slot)->withheld) {
            return false;
        }
        log_given(tc, slot, step, version);
        struct segment *segment = term_context_slot(tc, slot, &k)->segment;
        segment_set_given_back(segment, k, true);
    }
    submit(p, tc, slot, true);
    return true;
}

/* ---- taking back --------------------------------------------------------------------------------------------- */

/* A recovery that has no slot for what it restores. */
static bool is_asked_for(const struct pressure *p, const struct term_context *tc)
{
    return !decision_is_recovered(node_decision(tc->node)) && fetches_lack_memory(p->needs.fetches);
}

/* A recovery needs its slots, and does not wait until the shortage has been over for a while. Without the slot that it
 * asks for training cannot go on at all, so that one may use the reserve as long as memory does not become critical. */
static bool may_take(const struct pressure *p, const struct term_context *tc, uint64_t slot_bytes)
{
    if (p->watch == NULL) {
        return true;
    }
    if (decision_is_recovered(node_decision(tc->node))) {
        return memory_level_allows(&p->state, p->reserve_bytes, slot_bytes);
    }
    uint64_t available = p->state.before.available_bytes, left = available > slot_bytes ? available - slot_bytes : 0;
    bool asked = is_asked_for(p, tc);
    return (asked || p->state.now == MEMORY_ENOUGH) && left > 0 && left >= p->reserve_bytes / (asked ? 2 : 1);
}

/* What this node needs counts already. A slot that is used instead of one that is lost for now comes on top of it. */
static bool cap_allows(const struct pressure *p, const struct segment *segment)
{
    const struct memory *memory = p->needs.memory;
    uint64_t used = memory_used_bytes(memory), cap = memory_cap_bytes(memory);
    return segment_lacking(segment) > 0 || (used <= cap && segment_info(segment).slot_stride <= cap - used);
}

static void take(struct pressure *p, struct term_context *tc)
{
    uint32_t k, slot = node_take_back_next(tc->node);
    if (slot == NONE32) {
        return;
    }
    const struct local_shard *d = term_context_slot(tc, slot, &k);
    if (d->gone) { /* only its number is left */
        struct event event = {.type = EVENT_TAKE_BACK, .slot = slot};
        driver_step_node(tc, &event);
    } else if (cap_allows(p, d->segment) && may_take(p, tc, segment_info(d->segment).slot_stride)) {
        submit(p, tc, slot, false);
    }
}

/* ---- when ---------------------------------------------------------------------------------------------------- */

static void act(struct pressure *p)
{
    struct term_context *tc = usable_term(p);
    if (tc == NULL) {
        return;
    }
    if (!p->busy && clock_ms() >= p->pause_until_ms) {
        bool takes = p->state.now == MEMORY_ENOUGH || is_asked_for(p, tc);
        bool gives = give(p, tc, takes ? MEMORY_ENOUGH : p->state.now);
        if (takes && !gives) {
            take(p, tc);
        }
    }
    log_suspended(p, tc);
}

static void on_timer(void *ctx)
{
    struct pressure *p = ctx;
    if (p->watch != NULL) {
        look(p);
    }
    act(p);
}

/* ---- for operators ------------------------------------------------------------------------------------------- */

static void count_given_back(const struct pressure *p, struct pressure_figures *out)
{
    for (size_t i = 0; i < memory_count(p->needs.memory); i++) {
        const struct segment *segment = memory_at(p->needs.memory, i);
        uint32_t lacking = segment_lacking(segment);
        out->slots_given_back += lacking;
        out->bytes_given_back += lacking * segment_info(segment).slot_stride;
    }
}

struct pressure_figures pressure_figures(const struct pressure *p)
{
    const struct term_context *tc = usable_term(p);
    struct pressure_figures out = {.watched = p->watch != NULL,
                                   .level = p->state.level,
                                   .since_ms = p->since_ms,
                                   .available_bytes = p->state.before.available_bytes,
                                   .reserve_bytes = p->reserve_bytes,
                                   .of = p->of};
    if (tc != NULL) {
        struct given_up ignored;
        uint32_t at = 0;
        count_given_back(p, &out);
        out.saving_suspended = node_saving_suspended(tc->node);
        while (pressure_given_up(p, &at, &ignored)) {
            out.copies_given_up++;
        }
    }
    return out;
}

/* A source never gives up its copy of what storage does not have: if that is missing, it was damaged. */
static bool was_given_up(const struct term_context *tc, uint32_t shard, struct version version)
{
    bool stored = version_is(node_decision(tc->node)->published, version);
    return copy_is_due(tc, shard) && !copy_is_here(tc, shard, version) && node_lacks_slots(tc->node, shard) &&
           (stored || tc->shards[shard].source != tc->self);
}

bool pressure_given_up(const struct pressure *p, uint32_t *at, struct given_up *out)
{
    const struct term_context *tc = usable_term(p);
    struct version version = tc != NULL ? copy_due(tc) : VERSION_NONE;
    for (; !version_none(version) && *at < tc->setup.shard_count; ++*at) {
        const struct node_shard *s = &tc->shards[*at];
        if (!was_given_up(tc, *at, version)) {
            continue;
        }
        const struct world_shard *shard = &tc->world.shards[s->world_shard];
        *out = (struct given_up){.rank = tc->world.shard_ranks[shard->first_rank],
                                 .version = version,
                                 .node = s->source != tc->self ? tc->world.nodes[s->source].name : NULL,
                                 .stored = version_is(node_decision(tc->node)->published, version)};
        ++*at;
        return true;
    }
    return false;
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

tck_status_t pressure_new(const struct pressure_setup *setup, struct pressure **out, struct error *err)
{
    struct pressure *p = calloc(1, sizeof(*p));
    if (p == NULL || loop_timer_add(setup->loop, on_timer, p, &p->timer) != TCK_OK) {
        free(p);
        return error_set(err, TCK_ERR_NOMEM, "memory pressure: out of memory");
    }
    p->needs = *setup;
    const struct memory_watch_setup watch = {.loop = setup->loop, .root = "", .stalled = on_timer, .ctx = p};
    bool on = setup->config->memory_pressure == SWITCH_ON;
    tck_status_t status = on ? memory_watch_new(&watch, &p->watch, err) : TCK_OK;
    if (status != TCK_OK) {
        loop_timer_remove(p->timer);
        free(p);
        return status;
    }
    loop_timer_set(p->timer, LOOK_MS, true);
    *out = p;
    return TCK_OK;
}

void pressure_free(struct pressure *p)
{
    if (p == NULL) {
        return;
    }
    memory_watch_free(p->watch);
    loop_timer_remove(p->timer);
    free(p);
}
