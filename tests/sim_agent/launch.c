/* SPDX-License-Identifier: Apache-2.0
 * A start of the job: all ranks attach, restore, train and detach together; what they exchange among themselves takes
 * no time. If one of them cannot go on all are killed and started again, as launchers do. */
#include "sim.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PHASE_LIMIT_US (120 * S) /* any phase ends before, however many agents die in it */
#define LAUNCHES_MAX   200
#define STAGGER_US     50
#define REST_US        (7 * S)   /* versions that can no longer commit have timed out by then */
#define END_LIMIT_US   (120 * S) /* from the last fault to the end of the job */

struct job job;

static void next_phase(void *ctx);
static void take_step(void *ctx);
static void watch(void *ctx);

/* ---- begin and end
 * ------------------------------------------------------------------------------------------------------ */

static void killed(void *ctx)
{
    struct rank *rank = ctx;
    if (!rank->launch->dead) {
        launch_fail(rank->launch, sim_between(100, 2000) * MS, "an agent has killed a trainer");
    }
}

static void make_ranks(struct launch *launch)
{
    launch->count = job.ranks;
    launch->ranks = calloc(job.ranks, sizeof(*launch->ranks));
    for (uint32_t r = 0; r < job.ranks; r++) {
        struct rank *rank = &launch->ranks[r];
        rank->launch = launch;
        rank->number = r;
        rank->host = &sim.hosts[r / job.ranks_per_host];
        rank->pid = process_begin(killed, rank);
    }
}

void launch_begin(void *unused)
{
    (void)unused;
    for (uint32_t i = 0; i < sim.host_count; i++) {
        if (sim.hosts[i].gone) {
            sim_after(100 * MS, NULL, launch_begin, NULL);
            return;
        }
    }
    if (++job.launches > LAUNCHES_MAX) {
        sim_violation("the job was launched %u times and does not come to its end", LAUNCHES_MAX);
        return;
    }
    struct launch *launch = calloc(1, sizeof(*launch));
    launch->number = job.launches;
    launch->phase_us = sim.us;
    job.launch = launch;
    sim_say("launch %u", launch->number);
    make_ranks(launch);
    for (uint32_t r = 0; r < launch->count; r++) {
        rank_next(&launch->ranks[r]);
    }
    sim_after(S, NULL, watch, launch);
}

void launch_fail(struct launch *launch, uint64_t again_us, const char *why)
{
    if (launch->dead) {
        return;
    }
    sim_say("launch %u ends: %s", launch->number, why);
    launch->dead = true;
    for (uint32_t r = 0; r < launch->count; r++) {
        rank_kill(&launch->ranks[r]);
    }
    job.launch = NULL;
    sim_after(again_us, NULL, launch_begin, NULL);
}

void launch_host_lost(struct host *host)
{
    struct launch *launch = job.launch;
    for (uint32_t r = 0; launch && r < launch->count; r++) {
        if (launch->ranks[r].host == host) {
            rank_kill(&launch->ranks[r]);
        }
    }
    if (launch) {
        launch_fail(launch, sim_between(50, 1000) * MS, "a machine is lost");
    }
}

void launch_refused(struct rank *rank, const struct error *err)
{
    struct launch *launch = rank->launch;
    if (launch->phase == PHASE_RESTORE && err->code == TCK_ERR_UNRECOVERABLE) {
        judge_unrecoverable(launch, err);
    }
    launch_fail(launch, sim_between(200, 2000) * MS, err->text);
}

/* ---- phases
 * --------------------------------------------------------------------------------------------------------------- */

static const char *const phase_names[] = {"hello",   "claim", "join",   "register", "map",
                                          "restore", "train", "detach", "over"};

/* Nothing hangs. */
static void watch(void *ctx)
{
    struct launch *launch = ctx;
    uint64_t since = launch->phase_us > faults.last_us ? launch->phase_us : faults.last_us;
    if (launch->dead || launch->phase == PHASE_OVER) {
        return;
    }
    if (launch->phase != PHASE_TRAIN && sim.us > since + PHASE_LIMIT_US) {
        sim_violation("launch %u hangs in phase %s", launch->number, phase_names[launch->phase]);
    }
    sim_after(S, NULL, watch, launch);
}

static void build_world(struct launch *launch)
{
    struct error err;
    struct rank_hello *hellos = calloc(launch->count, sizeof(*hellos));
    struct shard_info *infos = calloc((size_t)launch->count + 1, 2 * sizeof(*infos));
    uint32_t *counts = calloc(launch->count, sizeof(*counts));
    for (uint32_t r = 0; r < launch->count; r++) {
        hellos[r] = launch->ranks[r].hello;
        counts[r] = job.shards;
        rank_shard_ids(r, &infos[(size_t)job.shards * r]);
    }
    if (world_build(launch->term, hellos, launch->count, &launch->world, &err) != TCK_OK) {
        launch_fail(launch, 200 * MS, err.text); /* two agents had one node's name */
    } else if (world_add_shards(&launch->world, infos, counts, &err) != TCK_OK) {
        abort();
    }
    free(hellos);
    free(infos);
    free(counts);
}

void launch_arrived(struct rank *rank)
{
    struct launch *launch = rank->launch;
    if (++launch->arrived == launch->count) {
        sim_after(sim_between(10, 500), NULL, next_phase, launch);
    }
}

static void begin_training(struct launch *launch)
{
    judge_restored(launch);
    job.restores++;
    for (uint32_t r = 0; r < launch->count; r++) {
        rank_restored(&launch->ranks[r]);
    }
    launch->step = launch->ranks[0].fresh ? 0 : launch->ranks[0].version.step;
    sim_after(job.step_us, NULL, take_step, launch);
}

static void wake_rank(void *ctx)
{
    rank_next(ctx);
}

static void interrupt(void *launch)
{
    launch_fail(launch, sim_between(5, 50) * MS, "its trainers are killed while they restore");
}

/* With what two nodes say in this term on its way until the next one. */
static void interrupt_soon(struct launch *launch)
{
    struct host *a = &sim.hosts[sim_between(0, sim.host_count - 1)];
    struct host *b = &sim.hosts[sim_between(0, sim.host_count - 1)];
    link_stall(a, b, sim_between(50, 900) * MS);
    sim_after(sim_between(0, 100) * MS, NULL, interrupt, launch);
}

static void next_phase(void *ctx)
{
    struct launch *launch = ctx;
    if (launch->dead) {
        return;
    }
    if (sim.measure) {
        scale_phase(phase_names[launch->phase], launch->phase_us);
    }
    launch->phase++;
    launch->phase_us = sim.us;
    launch->arrived = 0;
    if (launch->phase == PHASE_RESTORE && sim.us < faults.until_us && sim_chance(20)) {
        interrupt_soon(launch);
    }
    if (launch->phase == PHASE_JOIN) {
        build_world(launch);
    } else if (launch->phase == PHASE_TRAIN) {
        begin_training(launch);
    } else if (launch->phase == PHASE_OVER) {
        sim_say("the job is done");
        job.done = true;
    }
    for (uint32_t r = 0; r < launch->count && !launch->dead && launch->phase < PHASE_OVER; r++) {
        struct rank *rank = &launch->ranks[r];
        rank->arrived = launch->phase == PHASE_TRAIN; /* it comes back by itself */
        if (sim.measure) {
            sim_after((uint64_t)r * STAGGER_US, NULL, wake_rank, rank); /* each sends the whole world */
        } else if (job.stagger_us) {
            sim_after(sim_between(0, job.stagger_us), NULL, wake_rank, rank);
        } else {
            rank_next(rank);
        }
    }
}

/* ---- training
 * -------------------------------------------------------------------------------------------------------------- */

static uint64_t last_multiple(uint64_t step, uint32_t of)
{
    return step / of * of;
}

/* What was to be saved is, and nobody is busy. */
static bool is_finished(const struct launch *launch)
{
    for (uint32_t r = 0; r < launch->count; r++) {
        const struct rank *rank = &launch->ranks[r];
        if (!rank->registered || rank->saving || rank->asked) {
            return false;
        }
    }
    return sim.us > faults.until_us && sim.us > faults.last_us && launch->step >= job.steps &&
           job.committed >= last_multiple(job.steps, job.save_every) &&
           job.published >= last_multiple(job.steps, job.store_every);
}

static void end_training(void *ctx)
{
    struct launch *launch = ctx;
    if (!launch->dead) {
        judge_settled(launch);
        next_phase(launch);
    }
}

static void take_step(void *ctx)
{
    struct launch *launch = ctx;
    if (launch->dead) {
        return;
    }
    if (sim.measure) {
        judge_look();
    }
    if (is_finished(launch)) {
        sim_after(REST_US, NULL, end_training, launch);
        return;
    }
    launch->step++;
    for (uint32_t r = 0; r < launch->count; r++) {
        struct rank *rank = &launch->ranks[r];
        if (rank->status) {
            atomic_store(&rank->status->current_step, launch->step);
            atomic_store(&rank->status->step_ns, job.step_us * 1000);
        }
        if (launch->step % job.save_every == 0 && (!sim.measure || launch->step == 1)) {
            rank_save(rank, launch->step, launch->step % job.store_every == 0);
        }
    }
    if (launch->step > job.steps && sim.us - launch->phase_us > END_LIMIT_US &&
        sim.us > faults.last_us + END_LIMIT_US) {
        sim_violation("saves come to nothing: step %" PRIu64 ", committed %" PRIu64 ", published %" PRIu64,
                      launch->step, job.committed, job.published);
        for (uint32_t i = 0; i < sim.host_count; i++) {
            host_show_slots(&sim.hosts[i]);
        }
    }
    sim_after(job.step_us, NULL, take_step, launch);
}
