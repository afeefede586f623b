/* SPDX-License-Identifier: Apache-2.0
 * Machines that are short of memory for a while, in schedules that have the trait: what their agents read of it, and
 * the pages that they give back. */
#include "sim.h"

#include "tiers/memory_pages.h"
#include "tiers/memory_watch.h"

#include <stdlib.h>
#include <string.h>

#define TOTAL_BYTES     ((uint64_t)100 << 30)          /* 2 GiB of it are the reserve */
#define AFTERWARDS      (MEMORY_CALM_MS * MS + 10 * S) /* until everything is used again */
#define FETCH_US        S                              /* then copies that were given up are fetched, one by one */
#define MEMORY_PATIENCE (14 * S)                       /* of a recovery at least */

/* ---- memory_watch.h ---------------------------------------------------------------------------------------------- */

struct memory_watch {
    struct host *host;
};

tck_status_t memory_watch_new(const struct memory_watch_setup *setup, struct memory_watch **out, struct error *err)
{
    (void)setup;
    (void)err;
    *out = calloc(1, sizeof(**out));
    if (*out == NULL) {
        abort();
    }
    (*out)->host = sim.current;
    return TCK_OK;
}

void memory_watch_free(struct memory_watch *watch)
{
    free(watch);
}

struct memory_figures memory_watch_read(const struct memory_watch *watch, char of[MEMORY_OF_BYTES])
{
    static const uint64_t left[] = {
        [MEMORY_ENOUGH] = TOTAL_BYTES / 2, [MEMORY_LOW] = TOTAL_BYTES / 60, [MEMORY_CRITICAL] = TOTAL_BYTES / 200};
    bool squeezed = sim.us < watch->host->squeezed_until_us;
    snprintf(of, MEMORY_OF_BYTES, "%s", watch->host->name);
    return (struct memory_figures){.total_bytes = TOTAL_BYTES,
                                   .available_bytes = left[squeezed ? watch->host->squeezed : MEMORY_ENOUGH]};
}

/* Restarts in the middle of a shortage are those that may find no slot for what they restore. */
static void restart(void *ctx)
{
    const struct launch *launch = job.launch;
    if (ctx == launch && launch != NULL) {
        launch_fail(job.launch, sim_between(10, 500) * MS, "its trainers are killed while memory is short");
    }
}

void pressure_squeeze(struct host *host)
{
    host->squeezed = sim_chance(75) ? MEMORY_CRITICAL : MEMORY_LOW;
    host->squeezed_until_us = sim.us + faults_lasting(100, 8000);
    faults_last(host->squeezed_until_us + AFTERWARDS);
    sim_log("%s has %s memory for %.3f s", host->name, memory_level_name(host->squeezed),
            (double)(host->squeezed_until_us - sim.us) / (double)S);
    if (host->squeezed == MEMORY_CRITICAL && sim_chance(50)) {
        sim_after(sim_between(0, host->squeezed_until_us - sim.us), NULL, restart, job.launch);
    }
}

void judge_memory_lacks(const struct launch *launch, const struct error *err)
{
    if (launch->phase == PHASE_RESTORE && err->code == TCK_ERR_NOSPC && pressure_lasts() &&
        sim.us < launch->began_us + MEMORY_PATIENCE) {
        sim_violation("a restore does not wait until memory is no longer short: %s", err->text);
    }
}

/* An agent whose term is over uses its slots again in the next one. */
static bool has_given_back(const struct host *host)
{
    const struct term_context *tc = host->agent != NULL ? host->agent->term_context : NULL;
    const struct memory *memory = tc != NULL && !tc->closed ? host->agent->memory : NULL;
    for (size_t i = 0; memory != NULL && i < memory_count(memory); i++) {
        if (segment_lacking(memory_at(memory, i)) > 0) {
            return true;
        }
    }
    return false;
}

bool pressure_lasts(void)
{
    bool lasts = false;
    for (uint32_t i = 0; sim_trait(TRAIT_PRESSURE) && i < sim.host_count && !lasts; i++) {
        lasts = sim.us < sim.hosts[i].squeezed_until_us || has_given_back(&sim.hosts[i]);
    }
    return lasts;
}

bool pressure_leaves_marks(void)
{
    uint64_t fetches_us = (uint64_t)job.newest.ranks * job.shards * FETCH_US;
    bool any = pressure_lasts();
    for (uint32_t i = 0; sim_trait(TRAIT_PRESSURE) && i < sim.host_count && !any; i++) {
        uint64_t until_us = sim.hosts[i].squeezed_until_us;
        any = until_us > 0 && sim.us < until_us + AFTERWARDS + fetches_us;
    }
    return any;
}

/* ---- memory_pages.h ---------------------------------------------------------------------------------------------- */

/* Ranges without pages. */
static struct hole {
    struct hole *next;
    const uint8_t *at;
    uint64_t bytes;
} * holes;

static bool overlaps(const struct hole *hole, const uint8_t *at, uint64_t bytes)
{
    return hole->at < at + bytes && at < hole->at + hole->bytes;
}

void pressure_forget(const uint8_t *at, uint64_t bytes)
{
    for (struct hole **hole = &holes; *hole != NULL;) {
        struct hole *next = (*hole)->next;
        if (overlaps(*hole, at, bytes)) {
            free(*hole);
            *hole = next;
        } else {
            hole = &(*hole)->next;
        }
    }
}

void pressure_untouched(const uint8_t *at, uint64_t bytes)
{
    if (bytes == 0) {
        return;
    }
    struct hole *hole = malloc(sizeof(*hole));
    if (hole == NULL) {
        abort();
    }
    *hole = (struct hole){holes, at, bytes};
    holes = hole;
}

bool pages_removable(const struct pages *pages)
{
    (void)pages;
    return true;
}

tck_status_t pages_remove(const struct pages *pages, uint64_t offset, uint64_t bytes, struct error *err)
{
    (void)err;
    uint8_t *at = pages->base + offset;
    slot_use_removed(at, bytes);
    pressure_forget(at, bytes);
    pressure_untouched(at, bytes);
    memset(at, 0, bytes);
    return TCK_OK;
}

tck_status_t pages_refill(const struct pages *pages, uint64_t offset, uint64_t bytes, uint32_t threads,
                          struct error *err)
{
    (void)threads;
    if (sim.us < faults.until_us && sim_chance(10)) {
        return error_set(err, TCK_ERR_NOSPC, "no memory for %" PRIu64 " bytes", bytes);
    }
    pressure_forget(pages->base + offset, bytes);
    return TCK_OK;
}

bool pressure_has_pages(const uint8_t *at, uint64_t bytes)
{
    for (const struct hole *hole = holes; hole != NULL; hole = hole->next) {
        if (overlaps(hole, at, bytes)) {
            return false;
        }
    }
    return true;
}

bool pages_all(const struct pages *pages, uint64_t offset, uint64_t bytes)
{
    return pressure_has_pages(pages->base + offset, bytes);
}

bool pages_any(const struct pages *pages, uint64_t offset, uint64_t bytes)
{
    return pages_all(pages, offset, bytes);
}

/* ---- what is given up -------------------------------------------------------------------------------------------- */

/* The newest committed version becomes free only because memory is short. (A damaged copy is known as such.) */
void pressure_header(const struct slot_header *before, const struct slot_header *now)
{
    struct host *host = sim.current;
    const struct term_context *tc = host != NULL && host->agent != NULL ? host->agent->term_context : NULL;
    if (before->state == SLOT_VERIFIED && now->state == SLOT_FREE && tc != NULL && sim_trait(TRAIT_PRESSURE) &&
        version_is(node_decision(tc->node)->watermark, before->version)) {
        judge_given_up(host, before->shard, before->version);
    }
}
