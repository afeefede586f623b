/* SPDX-License-Identifier: Apache-2.0
 * Scrubs the memory tier: checks every snapshot against its digests again and again, in small parts with pauses, or at
 * once for the command. A copy that does not match is dropped, and a missing copy of the committed version is fetched
 * from another node or from storage. */
#include "agent/scrub/memory_scrub.h"

#include "agent/driver/missing_copies.h"
#include "agent/driver/protocol_driver.h"
#include "agent/driver/slot_ops.h"
#include "agent/driver/term_context.h"
#include "agent/replication/fetch.h"
#include "base/clock.h"
#include "base/loop.h"
#include "base/pool.h"
#include "core/node_pressure.h"
#include "recovery/repair_source.h"
#include "tiers/memory.h"
#include "tiers/segment.h"

#include <stdlib.h>

#define PART_CHUNKS     16u   /* checked in one job, which a registration may have to wait for */
#define PAUSE_MAX_MS    5000u /* so that a pass soon notices new snapshots */
#define REPAIR_PAUSE_MS 10000u

/* One pass over all slots. */
struct sweep {
    struct sweep *next;
    struct scrub *scrub;
    size_t segment;
    uint32_t slot, chunk;
    struct hash128 shard; /* of the slot being checked, with its header's sequence number: if either changes, the slot
                             is checked from its start */
    uint64_t sequence;
    struct segment *at;
    bool busy;
    struct error outcome;
    uint64_t checked;
    json_t *bad;
    scrub_done_fn *done; /* NULL: the continuous sweep */
    void *ctx;
};

struct scrub {
    struct scrub_setup needs;
    struct sweep *sweeps; /* requested by the command */
    struct sweep slow;
    struct loop_timer *timer;
    uint64_t bad, repaired, headers_repaired;
};

/* ---- damaged copies ---------------------------------------------------------------------------------------------- */

void scrub_drop_copy(struct scrub *scrub, struct segment *segment, uint32_t k, const char *why)
{
    struct term_context *tc = *scrub->needs.term;
    struct slot_header header = *segment_header(segment, k);
    uint32_t local_shard = tc != NULL ? term_context_shard(tc, header.shard) : NONE32;
    scrub->bad++;
    log_error("a copy in memory is damaged and was dropped: %s", why);
    if (local_shard != NONE32) {
        uint32_t slot = tc->local_shards[local_shard].first_slot + k;
        struct event event = {.type = EVENT_CORRUPT, .slot = slot};
        driver_step_node(tc, &event);
        return;
    }
    header.state = SLOT_FREE;
    header.version = VERSION_NONE;
    header.committed = false;
    segment_write_header(segment, k, &header);
}

/* ---- one pass ------------------------------------------------------------------------------------------------ */

static void repair_header(struct sweep *s, struct segment *segment, uint32_t k)
{
    if (s->chunk == 0 && segment_repair_header(segment, k)) {
        s->scrub->headers_repaired++;
        log_warn("the header of a slot was damaged in memory: rewrote it");
    }
}

/* The segment of the next slot that has digests, from the sweep's place on; NULL at the end. */
static struct segment *find_slot(struct sweep *s)
{
    const struct memory *memory = s->scrub->needs.memory;
    for (; s->segment < memory_count(memory); s->segment++, s->slot = 0, s->chunk = 0) {
        struct segment *segment = memory_at(memory, s->segment);
        for (; s->slot < segment_info(segment).slot_count; s->slot++, s->chunk = 0) {
            repair_header(s, segment, s->slot);
            const struct slot_header *h = segment_header(segment, s->slot);
            if (h->state != SLOT_VERIFIED) {
                continue;
            }
            if (h->sequence != s->sequence || !hash128_is(h->shard, s->shard)) {
                s->chunk = 0;
                s->sequence = h->sequence;
                s->shard = h->shard;
            }
            return segment;
        }
    }
    return NULL;
}

static void part_work(void *ctx)
{
    struct sweep *s = ctx;
    uint32_t count = chunk_count(segment_info(s->at).image_bytes);
    s->outcome.code = segment_verify_root(s->at, s->slot, &s->outcome);
    for (uint32_t i = s->chunk; i < s->chunk + PART_CHUNKS && i < count && s->outcome.code == TCK_OK; i++) {
        s->outcome.code = segment_verify_chunk(s->at, s->slot, i, &s->outcome);
    }
}

/* The result counts only if the slot has not been written to since. */
static void part_checked(struct sweep *s)
{
    const struct slot_header *h = segment_header(s->at, s->slot);
    if (h->state != SLOT_VERIFIED || h->sequence != s->sequence) {
        return;
    }
    s->chunk += PART_CHUNKS;
    if (s->outcome.code == TCK_ERR_CORRUPT) {
        if (s->bad != NULL) {
            json_add_str(s->bad, NULL, s->outcome.text);
        }
        scrub_drop_copy(s->scrub, s->at, s->slot, s->outcome.text);
    } else if (s->chunk < chunk_count(segment_info(s->at).image_bytes)) {
        return;
    } else {
        s->checked++;
    }
    s->slot++;
    s->chunk = 0;
}

static void schedule_next(struct sweep *s);

static void part_done(void *ctx, bool canceled)
{
    struct sweep *s = ctx;
    const struct scrub_setup *needs = &s->scrub->needs;
    s->busy = false;
    if (!canceled) {
        part_checked(s);
    }
    slot_op_end(needs->slot_ops);
    if (!*needs->leaving) {
        schedule_next(s);
    }
}

static void sweep_unlink(struct scrub *scrub, struct sweep *s)
{
    struct sweep **at = &scrub->sweeps;
    while (*at != s) {
        at = &(*at)->next;
    }
    *at = s->next;
}

/* Ends a requested sweep. */
static void sweep_end(struct sweep *s)
{
    sweep_unlink(s->scrub, s);
    s->done(s->ctx, s->checked, s->bad);
    free(s);
}

/* Checks the next part. While memory is being allocated it does nothing, and the next tick retries. False: the pass is
 * complete.
 */
static bool sweep_step(struct sweep *s)
{
    const struct scrub_setup *needs = &s->scrub->needs;
    if (s->busy || slot_ops_memory(needs->slot_ops) != MEMORY_STEADY || *needs->leaving) {
        return true;
    }
    s->at = find_slot(s);
    if (s->at == NULL) {
        return false;
    }
    slot_op_begin(needs->slot_ops);
    s->busy = true;
    if (pool_submit(needs->pool, part_work, part_done, s) != TCK_OK) {
        s->busy = false;
        slot_op_end(needs->slot_ops);
    }
    return true;
}

static void requested_step(struct sweep *s)
{
    if (!sweep_step(s)) {
        sweep_end(s);
    }
}

/* ---- pace -------------------------------------------------------------------------------------------------------- */

/* Spreads the parts over scrub_interval_s. */
static uint64_t pause_ms(const struct scrub *scrub)
{
    const struct memory *memory = scrub->needs.memory;
    bool steady = slot_ops_memory(scrub->needs.slot_ops) == MEMORY_STEADY;
    uint64_t parts = 0;
    for (size_t i = 0; steady && i < memory_count(memory); i++) {
        struct segment_info info = segment_info(memory_at(memory, i));
        parts += (uint64_t)info.slot_count * ((chunk_count(info.image_bytes) + PART_CHUNKS - 1) / PART_CHUNKS);
    }
    uint64_t pause = scrub->needs.config->scrub_interval_s * 1000ull / (parts ? parts : 1);
    return pause < 1 ? 1 : pause > PAUSE_MAX_MS ? PAUSE_MAX_MS : pause;
}

static void schedule_next(struct sweep *s)
{
    if (s->done != NULL) {
        requested_step(s);
    } else {
        loop_timer_set(s->scrub->timer, pause_ms(s->scrub), false);
    }
}

static void on_timer(void *ctx)
{
    struct scrub *scrub = ctx;
    if (!sweep_step(&scrub->slow)) {
        scrub->slow.segment = 0;
        scrub->slow.slot = 0;
        scrub->slow.chunk = 0;
    }
    if (!scrub->slow.busy) { /* there is nothing to check now */
        loop_timer_set(scrub->timer, pause_ms(scrub), false);
    }
}

tck_status_t scrub_now(struct scrub *scrub, scrub_done_fn *done, void *ctx, struct error *err)
{
    struct sweep *s = calloc(1, sizeof(*s));
    json_t *bad = json_array();
    if (s == NULL || bad == NULL) {
        free(s);
        json_free(bad);
        return error_set(err, TCK_ERR_NOMEM, "out of memory");
    }
    *s = (struct sweep){.next = scrub->sweeps, .scrub = scrub, .bad = bad, .done = done, .ctx = ctx};
    scrub->sweeps = s;
    requested_step(s);
    return TCK_OK;
}

/* ---- missing copies ---------------------------------------------------------------------------------------------- */

/* Tries one source after the other, with a pause after the last. */
static void repair(struct scrub *scrub, struct term_context *tc, uint32_t local_shard, struct version version)
{
    struct local_shard *d = &tc->local_shards[local_shard];
    uint32_t shard = tc->shards[local_shard].world_shard;
    struct wire_fetch ask = {.term = tc->world.term, .shard = shard, .version = version, .floor = version};
    struct repair_source source;
    if (clock_ms() < d->repair_after_ms) {
        return;
    }
    if (!repair_source_at(&tc->placement, shard, tc->self, d->repair_tries, &source)) {
        d->repair_tries = 0;
        d->repair_after_ms = clock_ms() + REPAIR_PAUSE_MS;
        return;
    }
    d->repair_tries++;
    ask.source = source.kind;
    if (source.node != NONE32) {
        ask.from = tc->world.nodes[source.node];
    }
    fetch_repair(scrub->needs.fetches, tc, &ask);
}

void scrub_repaired(struct scrub *scrub, bool ok)
{
    scrub->repaired += ok;
}

/* Sources that failed for an older version may have the next one. */
static void reset_repairs(struct local_shard *d)
{
    d->repair_tries = 0;
    d->repair_after_ms = 0;
}

/* Repairs one copy at a time, and none while a recovery fetches. What was given up because memory is short is fetched
 * when its slots are usable again. */
static void repair_missing(struct scrub *scrub, struct term_context *tc)
{
    struct version version = copy_due(tc);
    for (uint32_t i = 0; !version_none(version) && i < tc->setup.shard_count; i++) {
        if (copy_is_here(tc, i, version)) {
            reset_repairs(&tc->local_shards[i]);
        } else if (fetches_none(scrub->needs.fetches) && copy_is_due(tc, i) && !node_lacks_slots(tc->node, i) &&
                   node_slot_of(tc->node, i, version) == NONE32) {
            repair(scrub, tc, i, version);
        }
    }
}

void scrub_peer_up(struct scrub *scrub)
{
    struct term_context *tc = *scrub->needs.term;
    for (uint32_t i = 0; tc != NULL && !tc->closed && i < tc->setup.shard_count; i++) {
        reset_repairs(&tc->local_shards[i]);
    }
}

void scrub_tick(struct scrub *scrub)
{
    struct term_context *tc = *scrub->needs.term;
    for (struct sweep *s = scrub->sweeps, *next; s != NULL; s = next) {
        next = s->next;
        requested_step(s);
    }
    if (tc != NULL && !tc->closed && slot_ops_memory(scrub->needs.slot_ops) == MEMORY_STEADY) {
        repair_missing(scrub, tc);
    }
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

struct scrub_counts scrub_counts(const struct scrub *scrub)
{
    return (struct scrub_counts){.slots_checked = scrub->slow.checked,
                                 .slots_bad = scrub->bad,
                                 .headers_repaired = scrub->headers_repaired,
                                 .copies_repaired = scrub->repaired,
                                 .copies_missing = copies_missing(scrub->needs.slot_ops, *scrub->needs.term)};
}

tck_status_t scrub_new(const struct scrub_setup *setup, struct scrub **out, struct error *err)
{
    struct scrub *scrub = calloc(1, sizeof(*scrub));
    if (scrub == NULL || loop_timer_add(setup->loop, on_timer, scrub, &scrub->timer) != TCK_OK) {
        free(scrub);
        return error_set(err, TCK_ERR_NOMEM, "scrub: out of memory");
    }
    scrub->needs = *setup;
    scrub->slow.scrub = scrub;
    *out = scrub;
    if (setup->config->scrub_interval_s > 0) {
        loop_timer_set(scrub->timer, pause_ms(scrub), false);
    }
    return TCK_OK;
}

void scrub_free(struct scrub *scrub)
{
    if (scrub == NULL) {
        return;
    }
    while (scrub->sweeps != NULL) {
        struct sweep *s = scrub->sweeps;
        scrub->sweeps = s->next;
        json_free(s->bad);
        s->done(s->ctx, s->checked, NULL);
        free(s);
    }
    loop_timer_remove(scrub->timer);
    free(scrub);
}
