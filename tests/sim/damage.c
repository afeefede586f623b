/* SPDX-License-Identifier: Apache-2.0
 * Bits that flip in memory, in copies that were verified before, and storage that returns errors or old contents. Both
 * are added to the other faults, only in schedules that have the trait. */
#include "sim.h"

#include "agent/driver/protocol_driver.h"

#include <inttypes.h>
#include <stdlib.h>

struct damaged {
    struct damaged *next;
    const struct host *host;
    struct hash128 shard;
    struct version version;
};

static struct damaged *all;

bool damage_is_known(const struct host *host, struct hash128 shard, struct version version)
{
    const struct damaged *d = all;
    while (d != NULL && (d->host != host || !hash128_is(d->shard, shard) || !version_is(d->version, version))) {
        d = d->next;
    }
    return d != NULL;
}

uint32_t damage_count(struct version version)
{
    uint32_t count = 0;
    for (const struct damaged *d = all; d != NULL; d = d->next) {
        count += version_is(d->version, version);
    }
    return count;
}

static uint64_t pause_us(void)
{
    return sim_between(20, 1500) * MS;
}

void damage_slot(struct host *host, struct segment *segment, uint32_t k)
{
    struct segment_info info = segment_info(segment);
    struct version version = segment_header(segment, k)->version;
    struct damaged *d = calloc(1, sizeof(*d));
    if (d == NULL) {
        abort();
    }
    *d = (struct damaged){.next = all, .host = host, .shard = info.shard, .version = version};
    all = d;
    segment_image(segment, k)[sim_between(0, info.image_bytes - 1)] ^= (uint8_t)(1 << sim_between(0, 7));
    sim_log("%s: a bit flips in step %" PRIu64 " of term %" PRIu64, host->name, version.step, version.term);
    slot_use_damaged(segment_image(segment, k));
    judge_memory_changed(host, &info.shard);
    judge_damaged(host, info.shard, version);
}

/* Leaves the scrub time to find the damage, and the agent time to fetch the copy again. */
static void strike_slot(struct host *host, struct segment *segment, uint32_t k)
{
    damage_slot(host, segment, k);
    faults_last(sim.us + 6 * S);
}

static void flip_bit(void)
{
    struct host *host = &sim.hosts[sim_between(0, sim.host_count - 1)];
    size_t count = host->agent != NULL && host->agent->memory != NULL ? memory_count(host->agent->memory) : 0;
    if (count == 0) {
        return;
    }
    struct segment *segment = memory_at(host->agent->memory, (size_t)sim_between(0, count - 1));
    struct segment_info info = segment_info(segment);
    uint32_t k = (uint32_t)sim_between(0, info.slot_count - 1);
    for (uint32_t i = 0; i < info.slot_count && sim_chance(70); i++) { /* preferably a slot whose loss matters */
        k = segment_header(segment, i)->committed ? i : k;
    }
    const struct slot_header *header = segment_header(segment, k);
    if (header->state == SLOT_VERIFIED && !damage_is_known(host, info.shard, header->version)) {
        strike_slot(host, segment, k);
    }
}

void damage_sent(struct host *host, const void *image)
{
    for (size_t i = 0; i < memory_count(host->agent->memory); i++) {
        struct segment *segment = memory_at(host->agent->memory, i);
        struct segment_info info = segment_info(segment);
        for (uint32_t k = 0; k < info.slot_count; k++) {
            const struct slot_header *header = segment_header(segment, k);
            if (segment_image(segment, k) == image && header->state == SLOT_VERIFIED &&
                !damage_is_known(host, info.shard, header->version)) {
                strike_slot(host, segment, k);
            }
        }
    }
}

/* Returns the number of copies of a shard, and the last one found. */
static uint32_t find_copies(struct hash128 shard, struct version version, struct host **host_out, uint32_t *slot_out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < sim.host_count; i++) {
        struct host *host = &sim.hosts[i];
        struct segment *segment = host->agent != NULL ? memory_find(host->agent->memory, shard) : NULL;
        for (uint32_t k = 0; segment != NULL && k < segment_info(segment).slot_count; k++) {
            const struct slot_header *header = segment_header(segment, k);
            if (header->state == SLOT_VERIFIED && version_is(header->version, version)) {
                *host_out = host;
                *slot_out = k;
                count++;
            }
        }
    }
    return count;
}

void damage_base(const struct shape *shape, struct version base)
{
    if (sim_trait(TRAIT_BASE_GOES_BAD) && sim.us <= faults.until_us) {
        damage_only_copies(shape, base);
    }
}

void damage_only_copies(const struct shape *shape, struct version base)
{
    for (uint32_t r = 0; r < shape->ranks; r++) {
        struct shard_info infos[2];
        rank_shard_ids(shape, r, infos);
        for (uint32_t i = 0; i < job.shards; i++) {
            struct host *host;
            uint32_t k;
            if (find_copies(infos[i].id, base, &host, &k) == 1 && !damage_is_known(host, infos[i].id, base)) {
                damage_slot(host, memory_find(host->agent->memory, infos[i].id), k);
            }
        }
    }
}

bool damage_at_rest(const struct shape *shape, struct version version)
{
    struct shard_info infos[2];
    struct host *host;
    uint32_t k;
    if (!faults.any || !sim_trait(TRAIT_DAMAGE)) {
        return false;
    }
    rank_shard_ids(shape, (uint32_t)sim_between(0, shape->ranks - 1), infos);
    bool strikes = find_copies(infos[0].id, version, &host, &k) > 1 && !damage_is_known(host, infos[0].id, version);
    if (strikes) {
        damage_slot(host, memory_find(host->agent->memory, infos[0].id), k);
    }
    return strikes;
}

/* `tierckpt drain`, as a user may call it between the intervals. */
static void request_drain(void *ctx)
{
    struct host *host = ctx;
    struct term_context *tc = host->agent != NULL ? host->agent->term_context : NULL;
    if (tc != NULL && !tc->closed && tc->coordinator != NULL) {
        struct event event = {.type = EVENT_DRAIN_ASKED};
        sim_log("a drain is requested");
        driver_step_coordinator(tc, &event);
        judge_drain_asked(coordinator_decision(tc->coordinator));
    }
}

static void strike_drains(void *unused)
{
    (void)unused;
    bool trains = job.launch != NULL && job.launch->phase == PHASE_TRAIN && !launch_rests(job.launch);
    if (job.done || (sim.us > faults.until_us && job.launch != NULL && !trains)) {
        return;
    }
    for (uint32_t i = 0; i < sim.host_count; i++) {
        if (sim.hosts[i].loop != NULL && sim.hosts[i].stopped_until_us <= sim.us) {
            host_run(&sim.hosts[i], request_drain, &sim.hosts[i]);
        }
    }
    sim_after(pause_us(), NULL, strike_drains, NULL);
}

static void strike_memory(void *unused)
{
    (void)unused;
    if (sim.us <= faults.until_us && !job.done) {
        flip_bit();
        faults.count++;
        sim_after(pause_us(), NULL, strike_memory, NULL);
    }
}

static void strike_storage(void *unused)
{
    (void)unused;
    if (sim.us <= faults.until_us && !job.done) {
        bool alone = sim_chance(25); /* storage then has the only copy */
        uint64_t until_us = sim.us + sim_between(50, alone ? 10000 : 3000) * MS;
        doubts_strike(until_us);
        for (uint32_t i = 0; alone && i < sim.host_count; i++) {
            host_lose(&sim.hosts[i], sim_between(200, 1500) * MS);
        }
        faults_last(until_us);
        faults.count++;
        sim_after(pause_us(), NULL, strike_storage, NULL);
    }
}

void damage_plan(void)
{
    if (faults.any && sim_trait(TRAIT_DAMAGE)) {
        sim_after(sim_between(500, 3000) * MS, NULL, strike_memory, NULL);
    }
    if (sim_trait(TRAIT_SLOW_DRAINS)) {
        sim_after(sim_between(500, 3000) * MS, NULL, strike_drains, NULL);
    }
    if (faults.any && sim_trait(TRAIT_DOUBTS)) {
        sim_after(sim_between(500, 3000) * MS, NULL, strike_storage, NULL);
        doubts_plan();
    }
}
