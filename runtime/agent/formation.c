/* SPDX-License-Identifier: Apache-2.0
 * One joined term on this node: from the world and the placement to the node machine's duties, and slots back from
 * their headers. */
#include "agent/agent.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define RETRY_MS 500

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

int64_t formation_local_rank(const struct formation *f, uint32_t rank)
{
    for (uint32_t i = 0; i < f->rank_count; i++) {
        if (f->ranks[i] == rank) {
            return i;
        }
    }
    return -1;
}

bool formation_is_coordinator(const struct formation *f)
{
    return f->self == 0;
}

uint32_t formation_duty(const struct formation *f, struct hash128 shard)
{
    for (uint32_t i = 0; i < f->setup.shard_count; i++) {
        if (hash128_is(f->shards[i].id, shard) && !f->duties[i].gone) {
            return i;
        }
    }
    return NONE32;
}

struct duty *formation_slot(const struct formation *f, uint32_t slot, uint32_t *slot_in_segment)
{
    const struct slot *s = node_slot(f->node, slot);
    struct duty *d = &f->duties[s->shard];
    *slot_in_segment = slot - d->first_slot;
    return d;
}

/* ---- seals --------------------------------------------------------------------------------------------------- */

/* The version with which this rank has filled its slots, if it has sealed every one of them; VERSION_NONE otherwise. */
static struct version sealed_by(const struct formation *f, uint32_t rank)
{
    struct version sealed = VERSION_NONE;
    for (uint32_t i = 0; i < f->setup.shard_count; i++) {
        for (uint32_t k = 0; f->shards[i].storing_rank == rank && k < f->shards[i].slot_count; k++) {
            const struct slot *slot = node_slot(f->node, f->duties[i].first_slot + k);
            if (slot->state != SLOT_FILLING) {
                continue;
            }
            if (!version_is(segment_seal(f->duties[i].segment, k).version, slot->version)) {
                return VERSION_NONE;
            }
            sealed = slot->version;
        }
    }
    return sealed;
}

void formation_take_seal(struct formation *f, uint32_t rank)
{
    struct version sealed = sealed_by(f, rank);
    if (!version_none(sealed)) {
        log_info("rank %u has sealed step %llu and could not say so", f->ranks[rank], (unsigned long long)sealed.step);
        struct event event = {.type = EVENT_SEAL, .rank = rank, .version = sealed};
        drive_node(f, &event);
    }
}

void formation_take_seals(struct formation *f)
{
    for (uint32_t r = 0; r < f->rank_count; r++) {
        if (!client_of_rank(f->agent, f->world.term, f->ranks[r])) {
            formation_take_seal(f, r);
        }
    }
}

bool formation_digests_due(const struct formation *f)
{
    for (uint32_t i = 0; i < node_slot_total(f->node); i++) {
        const struct slot *slot = node_slot(f->node, i);
        if (slot->state == SLOT_SEALED && slot->version.term < f->world.term) {
            return true;
        }
    }
    return false;
}

/* ---- duties -------------------------------------------------------------------------------------------------- */

static tck_status_t find_self(struct formation *f, struct error *err)
{
    int64_t self = world_find_node(&f->world, f->agent->config.node);
    if (self < 0) {
        return error_set(err, TCK_ERR_PROTO, "the world of term %llu does not name node %s",
                         (unsigned long long)f->world.term, f->agent->config.node);
    }
    f->self = (uint32_t)self;
    f->ranks = calloc(f->world.world_size, sizeof *f->ranks);
    if (!f->ranks) {
        return error_set(err, TCK_ERR_NOMEM, "formation: out of memory");
    }
    for (uint32_t r = 0; r < f->world.world_size; r++) {
        if (f->world.node_of_rank[r] == f->self) {
            f->ranks[f->rank_count++] = r;
        }
    }
    return TCK_OK;
}

/* The lowest rank of this node that holds the shard saves it for all of them. */
static uint32_t storing_rank(const struct formation *f, uint32_t shard)
{
    for (uint32_t i = 0; i < f->rank_count; i++) {
        if (world_rank_has(&f->world, shard, f->ranks[i])) {
            return i;
        }
    }
    return NONE32;
}

static void fill_duty(struct formation *f, uint32_t index, struct segment *segment)
{
    struct segment_info info = segment_info(segment);
    struct node_shard *s = &f->shards[index];
    s->id = info.shard;
    s->slot_count = info.slot_count;
    s->storing_rank = NONE32;
    s->world_shard = NONE32;
    f->duties[index].segment = segment;
    int64_t found = world_find_shard(&f->world, info.shard);
    if (found < 0) {
        return;
    }
    uint32_t shard = (uint32_t)found;
    const struct shard_placement *p = &f->placement.shards[shard];
    bool owner = placement_is_owner(&f->placement, shard, f->self);
    bool holder = placement_is_holder(&f->placement, shard, f->self);
    if (!owner && !holder) {
        return;
    }
    s->world_shard = shard;
    s->held = holder;
    if (owner) {
        s->storing_rank = storing_rank(f, shard);
        s->drains_here = p->drainer == f->self;
    }
    if (owner && p->source == f->self) {
        s->holder_count = p->holder_count;
        memcpy(s->holders, p->holders, sizeof s->holders);
    }
}

static tck_status_t fill_duties(struct formation *f, struct error *err)
{
    size_t count = memory_count(f->agent->memory);
    f->shards = calloc(count ? count : 1, sizeof *f->shards);
    f->duties = calloc(count ? count : 1, sizeof *f->duties);
    if (!f->shards || !f->duties) {
        return error_set(err, TCK_ERR_NOMEM, "formation: out of memory");
    }
    uint32_t slot = 0;
    for (uint32_t i = 0; i < count; i++) {
        fill_duty(f, i, memory_at(f->agent->memory, i));
        f->duties[i].first_slot = slot;
        slot += f->shards[i].slot_count;
    }
    f->setup = (struct node_setup){
        .term = f->world.term,
        .self = f->self,
        .node_count = f->world.node_count,
        .layout = f->world.layout,
        .rank_count = f->rank_count,
        .shard_count = (uint32_t)count,
        .shards = f->shards,
        .version_timeout_ms = f->agent->config.version_timeout_ms,
        .retry_ms = RETRY_MS,
    };
    return TCK_OK;
}

/* The header says what the machine goes by, also to those who only look at it. */
static void quarantine(struct segment *segment, uint32_t k)
{
    struct slot_header header = *segment_header(segment, k);
    if (header.state != SLOT_QUARANTINED) {
        header.state = SLOT_QUARANTINED;
        segment_write_header(segment, k, &header);
    }
}

/* Slots as their headers and seals tell. */
static struct slot *slots_from_headers(const struct formation *f, uint32_t total)
{
    struct slot *slots = calloc(total ? total : 1, sizeof *slots);
    for (uint32_t i = 0; slots && i < f->setup.shard_count; i++) {
        for (uint32_t k = 0; k < f->shards[i].slot_count; k++) {
            struct slot *slot = &slots[f->duties[i].first_slot + k];
            const struct slot_header *header = segment_header(f->duties[i].segment, k);
            struct version seal = segment_seal(f->duties[i].segment, k).version;
            *slot = (struct slot){.shard = i,
                                  .state = slot_found(header->state, header->version, seal, f->world.term),
                                  .version = header->version,
                                  .root = header->root,
                                  .to_storage = header->to_storage};
            if (slot->state == SLOT_QUARANTINED) {
                quarantine(f->duties[i].segment, k);
            }
        }
    }
    return slots;
}

static tck_status_t start_node(struct formation *f, const struct decision *decision, struct error *err)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < f->setup.shard_count; i++) {
        total += f->shards[i].slot_count;
    }
    struct slot *slots = slots_from_headers(f, total);
    f->node_block = calloc(1, node_memory(&f->setup));
    f->actions.cap = node_actions_max(&f->setup);
    if (!slots || !f->node_block) {
        free(slots);
        return error_set(err, TCK_ERR_NOMEM, "formation: out of memory");
    }
    f->node = node_init(f->node_block, &f->setup, slots, clock_ms());
    free(slots);
    if (decision) {
        struct event event = {
            .type = EVENT_DECISION, .term = f->world.term, .now_ms = clock_ms(), .decision = *decision};
        f->queue = calloc(1, sizeof *f->queue);
        if (!f->queue) {
            return error_set(err, TCK_ERR_NOMEM, "formation: out of memory");
        }
        f->queue_cap = 1;
        f->queue[f->queue_count++] = (struct queued_event){.event = event};
    }
    return TCK_OK;
}

static tck_status_t start_coordinator(struct formation *f, const struct decision *decision, struct error *err)
{
    f->drains = calloc(f->world.node_count, sizeof *f->drains);
    f->registered = calloc(f->world.node_count, sizeof *f->registered);
    if (!f->drains || !f->registered) {
        return error_set(err, TCK_ERR_NOMEM, "formation: out of memory");
    }
    for (uint32_t s = 0; s < f->placement.shard_count; s++) {
        f->drains[f->placement.shards[s].drainer] = true;
    }
    f->coordinator_setup = (struct coordinator_setup){
        .term = f->world.term,
        .node_count = f->world.node_count,
        .layout = f->world.layout,
        .version_timeout_ms = f->agent->config.version_timeout_ms,
        .drains = f->drains,
    };
    f->coordinator_block = calloc(1, coordinator_memory(&f->coordinator_setup));
    if (!f->coordinator_block) {
        return error_set(err, TCK_ERR_NOMEM, "formation: out of memory");
    }
    f->coordinator = coordinator_init(f->coordinator_block, &f->coordinator_setup, decision, clock_ms());
    uint32_t cap = coordinator_actions_max(&f->coordinator_setup);
    f->actions.cap = cap > f->actions.cap ? cap : f->actions.cap;
    return TCK_OK;
}

tck_status_t formation_new(struct agent *agent, struct world *world, struct placement *placement,
                           const struct decision *decision, struct formation **out, struct error *err)
{
    struct formation *f = calloc(1, sizeof *f);
    if (!f) {
        return error_set(err, TCK_ERR_NOMEM, "formation: out of memory");
    }
    f->agent = agent;
    f->world = *world;
    f->placement = *placement;
    tck_status_t status = find_self(f, err);
    if (status == TCK_OK) {
        status = fill_duties(f, err);
    }
    if (status == TCK_OK) {
        status = start_node(f, decision, err);
    }
    if (status == TCK_OK && formation_is_coordinator(f)) {
        status = start_coordinator(f, decision, err);
    }
    f->actions.items = status == TCK_OK ? calloc(f->actions.cap, sizeof *f->actions.items) : NULL;
    f->peers = status == TCK_OK ? calloc(f->world.node_count, sizeof *f->peers) : NULL;
    f->lost = status == TCK_OK ? calloc(f->world.node_count, sizeof *f->lost) : NULL;
    if (status == TCK_OK && (!f->actions.items || !f->peers || !f->lost)) {
        status = error_set(err, TCK_ERR_NOMEM, "formation: out of memory");
    }
    if (status != TCK_OK) {
        memset(&f->world, 0, sizeof f->world); /* stays the caller's */
        memset(&f->placement, 0, sizeof f->placement);
        formation_free(f);
        return status;
    }
    *out = f;
    return TCK_OK;
}

void formation_free(struct formation *f)
{
    if (!f) {
        return;
    }
    twins_free(f);
    free(f->registered);
    free(f->lost);
    free(f->peers);
    free(f->queue);
    free(f->actions.items);
    free(f->coordinator_block);
    free(f->drains);
    free(f->node_block);
    free(f->duties);
    free(f->shards);
    free(f->ranks);
    placement_free(&f->placement);
    world_free(&f->world);
    free(f);
}
