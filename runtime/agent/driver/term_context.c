/* SPDX-License-Identifier: Apache-2.0
 * One joined term on this node: creates the node machine's shards from the world and the placement, and restores the
 * states of slots from their headers. */
#include "agent/driver/term_context.h"

#include "agent/driver/protocol_driver.h"
#include "agent/driver/twins.h"
#include "agent/ipc/ipc_server.h"
#include "base/clock.h"
#include "base/config.h"
#include "tiers/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_MS           500
#define DRAIN_PAUSE_MS     1000 /* after a failed drain; doubled each time up to */
#define DRAIN_PAUSE_MAX_MS 16000

bool world_rank_has(const struct world *world, uint32_t shard, uint32_t rank)
{
    const struct world_shard *s = &world->shards[shard];
    for (uint32_t i = 0; i < s->rank_count; i++) {
        if (world->shard_ranks[s->first_rank + i] == rank) {
            return true;
        }
    }
    return false;
}

int64_t term_context_local_rank(const struct term_context *tc, uint32_t rank)
{
    for (uint32_t i = 0; i < tc->rank_count; i++) {
        if (tc->ranks[i] == rank) {
            return i;
        }
    }
    return -1;
}

bool term_context_is_coordinator(const struct term_context *tc)
{
    return tc->self == 0;
}

uint32_t term_context_shard(const struct term_context *tc, struct hash128 shard)
{
    for (uint32_t i = 0; i < tc->setup.shard_count; i++) {
        if (hash128_is(tc->shards[i].id, shard) && !tc->local_shards[i].gone) {
            return i;
        }
    }
    return NONE32;
}

uint32_t term_context_next_of(const struct term_context *tc, uint32_t rank, uint32_t *at)
{
    while (*at < tc->in_world_count) {
        uint32_t local_shard = tc->in_world[(*at)++];
        if (world_rank_has(&tc->world, tc->shards[local_shard].world_shard, rank)) {
            return local_shard;
        }
    }
    return NONE32;
}

struct local_shard *term_context_slot(const struct term_context *tc, uint32_t slot, uint32_t *slot_in_segment)
{
    const struct slot *s = node_slot(tc->node, slot);
    struct local_shard *d = &tc->local_shards[s->shard];
    *slot_in_segment = slot - d->first_slot;
    return d;
}

/* ---- seals --------------------------------------------------------------------------------------------------- */

/* The version that this rank has sealed in all of its slots; VERSION_NONE if one of them is not sealed. */
static struct version sealed_by(const struct term_context *tc, uint32_t rank)
{
    struct version sealed = VERSION_NONE;
    for (uint32_t i = 0; i < tc->setup.shard_count; i++) {
        for (uint32_t k = 0; tc->shards[i].storing_rank == rank && k < tc->shards[i].slot_count; k++) {
            const struct slot *slot = node_slot(tc->node, tc->local_shards[i].first_slot + k);
            if (slot->state != SLOT_FILLING) {
                continue;
            }
            if (!version_is(segment_seal(tc->local_shards[i].segment, k).version, slot->version)) {
                return VERSION_NONE;
            }
            sealed = slot->version;
        }
    }
    return sealed;
}

void term_context_report_seal(struct term_context *tc, uint32_t rank)
{
    struct version sealed = sealed_by(tc, rank);
    if (!version_none(sealed)) {
        log_info("rank %u sealed step %" PRIu64 " and disconnected before reporting it", tc->ranks[rank], sealed.step);
        struct event event = {.type = EVENT_SEAL, .rank = rank, .version = sealed};
        driver_step_node(tc, &event);
    }
}

void term_context_report_seals(struct term_context *tc)
{
    for (uint32_t r = 0; r < tc->rank_count; r++) {
        if (client_of_rank(*tc->needs.clients, tc->world.term, tc->ranks[r]) == NULL) {
            term_context_report_seal(tc, r);
        }
    }
}

bool term_context_digests_due(const struct term_context *tc)
{
    for (uint32_t i = 0; i < node_slot_total(tc->node); i++) {
        const struct slot *slot = node_slot(tc->node, i);
        if (slot->state == SLOT_SEALED && slot->version.term < tc->world.term) {
            return true;
        }
    }
    return false;
}

/* ---- shards -------------------------------------------------------------------------------------------------- */

static tck_status_t find_self(struct term_context *tc, struct error *err)
{
    int64_t self = world_find_node(&tc->world, tc->needs.config->node);
    if (self < 0) {
        return error_set(err, TCK_ERR_PROTO, "the world of term %" PRIu64 " does not contain node %s", tc->world.term,
                         tc->needs.config->node);
    }
    tc->self = (uint32_t)self;
    uint32_t count = 0;
    for (uint32_t r = 0; r < tc->world.world_size; r++) {
        count += tc->world.node_of_rank[r] == tc->self;
    }
    tc->ranks = calloc((size_t)count + 1, sizeof(*tc->ranks));
    if (tc->ranks == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "term context: out of memory");
    }
    for (uint32_t r = 0; r < tc->world.world_size; r++) {
        if (tc->world.node_of_rank[r] == tc->self) {
            tc->ranks[tc->rank_count++] = r;
        }
    }
    return TCK_OK;
}

static void fill_local_shard(struct term_context *tc, uint32_t index, struct segment *segment)
{
    struct segment_info info = segment_info(segment);
    struct node_shard *s = &tc->shards[index];
    s->id = info.shard;
    s->slot_count = info.slot_count;
    s->storing_rank = NONE32;
    s->world_shard = NONE32;
    tc->local_shards[index].segment = segment;
    int64_t found = world_find_shard(&tc->world, info.shard);
    if (found < 0) {
        return;
    }
    uint32_t shard = (uint32_t)found;
    const struct shard_placement *p = &tc->placement.shards[shard];
    bool owner = placement_is_owner(&tc->placement, shard, tc->self);
    bool holder = placement_is_holder(&tc->placement, shard, tc->self);
    if (!owner && !holder) {
        return;
    }
    s->world_shard = shard;
    s->held = holder;
    s->source = p->source;
    s->drains_here = owner && p->drainer == tc->self;
    if (owner && p->source == tc->self) {
        s->holder_count = p->holder_count;
        memcpy(s->holders, p->holders, sizeof(s->holders));
    }
}

static int by_world_shard(const void *a, const void *b, void *shards)
{
    const struct node_shard *x = (const struct node_shard *)shards + *(const uint32_t *)a;
    const struct node_shard *y = (const struct node_shard *)shards + *(const uint32_t *)b;
    return (x->world_shard > y->world_shard) - (x->world_shard < y->world_shard);
}

static void sort_in_world(struct term_context *tc, size_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (tc->shards[i].world_shard != NONE32) {
            tc->in_world[tc->in_world_count++] = i;
        }
    }
    qsort_r(tc->in_world, tc->in_world_count, sizeof(*tc->in_world), by_world_shard, tc->shards);
}

/* Of this node's ranks that have the shard, the one that saves the fewest bytes so far. At least one has it. */
static uint32_t least_loaded_rank(const struct term_context *tc, uint32_t shard, const uint64_t *load)
{
    uint32_t best = 0;
    bool found = false;
    for (uint32_t i = 0; i < tc->rank_count; i++) {
        if (world_rank_has(&tc->world, shard, tc->ranks[i]) && (!found || load[i] < load[best])) {
            best = i;
            found = true;
        }
    }
    return best;
}

static uint32_t ranks_here(const struct term_context *tc, uint32_t shard)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < tc->rank_count; i++) {
        count += world_rank_has(&tc->world, shard, tc->ranks[i]);
    }
    return count;
}

/* Of the shards that one rank here has alone, or of those that several have. */
static void choose_storing_ranks_of(struct term_context *tc, bool several, uint64_t *load)
{
    for (uint32_t i = 0; i < tc->in_world_count; i++) {
        struct node_shard *s = &tc->shards[tc->in_world[i]];
        uint32_t ranks = ranks_here(tc, s->world_shard);
        if (ranks > 0 && several == (ranks > 1)) {
            s->storing_rank = least_loaded_rank(tc, s->world_shard, load);
            load[s->storing_rank] += tc->world.shards[s->world_shard].image_bytes;
        }
    }
}

/* One rank of this node saves a shard for all that have it. It follows from the world alone, so it stays the same when
 * this agent is restarted. */
static tck_status_t choose_storing_ranks(struct term_context *tc, struct error *err)
{
    uint64_t *load = calloc((size_t)tc->rank_count + 1, sizeof(*load));
    if (load == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "term context: out of memory");
    }
    choose_storing_ranks_of(tc, false, load);
    choose_storing_ranks_of(tc, true, load);
    free(load);
    return TCK_OK;
}

static tck_status_t fill_local_shards(struct term_context *tc, struct error *err)
{
    size_t count = memory_count(tc->needs.memory);
    tc->shards = calloc(count ? count : 1, sizeof(*tc->shards));
    tc->local_shards = calloc(count ? count : 1, sizeof(*tc->local_shards));
    tc->in_world = calloc(count ? count : 1, sizeof(*tc->in_world));
    if (tc->shards == NULL || tc->local_shards == NULL || tc->in_world == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "term context: out of memory");
    }
    uint32_t slot = 0;
    for (uint32_t i = 0; i < count; i++) {
        fill_local_shard(tc, i, memory_at(tc->needs.memory, i));
        tc->local_shards[i].first_slot = slot;
        slot += tc->shards[i].slot_count;
    }
    sort_in_world(tc, count);
    tc->setup = (struct node_setup){
        .term = tc->world.term,
        .self = tc->self,
        .node_count = tc->world.node_count,
        .layout = tc->world.layout,
        .rank_count = tc->rank_count,
        .shard_count = (uint32_t)count,
        .shards = tc->shards,
        .version_timeout_ms = tc->needs.config->version_timeout_ms,
        .retry_ms = RETRY_MS,
    };
    return choose_storing_ranks(tc, err);
}

/* Updates the header to match the machine's state, also for tools that read only headers. */
static void quarantine(struct segment *segment, uint32_t k)
{
    struct slot_header header = *segment_header(segment, k);
    if (header.state != SLOT_QUARANTINED) {
        header.state = SLOT_QUARANTINED;
        segment_write_header(segment, k, &header);
    }
}

/* The slots' states, from headers and seals. */
static struct slot *slots_from_headers(const struct term_context *tc, uint32_t total)
{
    struct slot *slots = calloc(total ? total : 1, sizeof(*slots));
    for (uint32_t i = 0; slots != NULL && i < tc->setup.shard_count; i++) {
        for (uint32_t k = 0; k < tc->shards[i].slot_count; k++) {
            struct slot *slot = &slots[tc->local_shards[i].first_slot + k];
            const struct slot_header *header = segment_header(tc->local_shards[i].segment, k);
            struct version seal = segment_seal(tc->local_shards[i].segment, k).version;
            *slot = (struct slot){.shard = i,
                                  .state = slot_found(header->state, header->version, seal, tc->world.term),
                                  .version = header->version,
                                  .root = header->root,
                                  .to_storage = header->to_storage,
                                  .withheld = segment_is_given_back(tc->local_shards[i].segment, k)};
            if (slot->state == SLOT_QUARANTINED) {
                quarantine(tc->local_shards[i].segment, k);
            }
        }
    }
    return slots;
}

static tck_status_t start_node(struct term_context *tc, const struct decision *decision, struct error *err)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < tc->setup.shard_count; i++) {
        total += tc->shards[i].slot_count;
    }
    struct slot *slots = slots_from_headers(tc, total);
    tc->node_block = calloc(1, node_memory(&tc->setup));
    tc->actions.cap = node_actions_max(&tc->setup);
    if (slots == NULL || tc->node_block == NULL) {
        free(slots);
        return error_set(err, TCK_ERR_NOMEM, "term context: out of memory");
    }
    tc->node = node_init(tc->node_block, &tc->setup, slots, clock_ms());
    free(slots);
    if (decision != NULL) {
        struct event event = {
            .type = EVENT_DECISION, .term = tc->world.term, .now_ms = clock_ms(), .decision = *decision};
        tc->queue = calloc(1, sizeof(*tc->queue));
        if (tc->queue == NULL) {
            return error_set(err, TCK_ERR_NOMEM, "term context: out of memory");
        }
        tc->queue_cap = 1;
        tc->queue[tc->queue_count++] = (struct queued_event){.event = event};
    }
    return TCK_OK;
}

static tck_status_t start_coordinator(struct term_context *tc, const struct decision *decision, struct error *err)
{
    tc->drains = calloc(tc->world.node_count, sizeof(*tc->drains));
    tc->registered = calloc(tc->world.node_count, sizeof(*tc->registered));
    if (tc->drains == NULL || tc->registered == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "term context: out of memory");
    }
    for (uint32_t s = 0; s < tc->placement.shard_count; s++) {
        tc->drains[tc->placement.shards[s].drainer] = true;
    }
    tc->coordinator_setup = (struct coordinator_setup){
        .term = tc->world.term,
        .node_count = tc->world.node_count,
        .layout = tc->world.layout,
        .version_timeout_ms = tc->needs.config->version_timeout_ms,
        .drain_pause_ms = DRAIN_PAUSE_MS,
        .drain_pause_max_ms = DRAIN_PAUSE_MAX_MS,
        .drains = tc->drains,
    };
    tc->coordinator_block = calloc(1, coordinator_memory(&tc->coordinator_setup));
    if (tc->coordinator_block == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "term context: out of memory");
    }
    tc->coordinator = coordinator_init(tc->coordinator_block, &tc->coordinator_setup, decision, clock_ms());
    uint32_t cap = coordinator_actions_max(&tc->coordinator_setup);
    tc->actions.cap = cap > tc->actions.cap ? cap : tc->actions.cap;
    return TCK_OK;
}

tck_status_t term_context_new(const struct term_setup *setup, struct world *world, struct placement *placement,
                              const struct decision *decision, struct term_context **out, struct error *err)
{
    struct term_context *tc = calloc(1, sizeof(*tc));
    if (tc == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "term context: out of memory");
    }
    tc->needs = *setup;
    tc->world = *world;
    tc->placement = *placement;
    tck_status_t status = find_self(tc, err);
    if (status == TCK_OK) {
        status = fill_local_shards(tc, err);
    }
    if (status == TCK_OK) {
        status = start_node(tc, decision, err);
    }
    if (status == TCK_OK && term_context_is_coordinator(tc)) {
        status = start_coordinator(tc, decision, err);
    }
    tc->actions.items = status == TCK_OK ? calloc(tc->actions.cap, sizeof(*tc->actions.items)) : NULL;
    tc->peers = status == TCK_OK ? calloc(tc->world.node_count, sizeof(*tc->peers)) : NULL;
    tc->lost = status == TCK_OK ? calloc(tc->world.node_count, sizeof(*tc->lost)) : NULL;
    if (status == TCK_OK && (tc->actions.items == NULL || tc->peers == NULL || tc->lost == NULL)) {
        status = error_set(err, TCK_ERR_NOMEM, "term context: out of memory");
    }
    if (status != TCK_OK) {
        memset(&tc->world, 0, sizeof(tc->world)); /* still owned by the caller */
        memset(&tc->placement, 0, sizeof(tc->placement));
        term_context_free(tc);
        return status;
    }
    *out = tc;
    return TCK_OK;
}

static void free_local_shards(struct term_context *tc)
{
    for (uint32_t i = 0; tc->local_shards != NULL && i < tc->setup.shard_count; i++) {
        free(tc->local_shards[i].unchanged.same);
    }
    free(tc->local_shards);
}

void term_context_free(struct term_context *tc)
{
    if (tc == NULL) {
        return;
    }
    twins_free(tc);
    free(tc->registered);
    for (uint32_t n = 0; tc->lost != NULL && n < tc->world.node_count; n++) {
        free(tc->lost[n].why);
    }
    free(tc->lost);
    free(tc->peers);
    free(tc->queue);
    free(tc->actions.items);
    free(tc->coordinator_block);
    free(tc->drains);
    free(tc->node_block);
    free(tc->in_world);
    free_local_shards(tc);
    free(tc->shards);
    free(tc->ranks);
    placement_free(&tc->placement);
    world_free(&tc->world);
    free(tc);
}
