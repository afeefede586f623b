/* SPDX-License-Identifier: Apache-2.0
 * Creates versions that all ranks have sealed but that could not be committed: the machines lose contact at that
 * moment, and the job is restarted. Each shard then has one copy, which is damaged after the trainers have read it and
 * before a second copy exists; or a machine or the coordinator's agent is down in the meantime. */
#include "sim.h"

#include "agent/driver/protocol_driver.h"

#include <inttypes.h>

#define AWAY_MS 9000 /* longer than a recovery waits for a member */

static bool armed;                         /* the next version that all ranks seal will not be committed */
static bool waited_for;                    /* the job must not end before the fault has happened */
static bool struck;                        /* the version that is restored next was never protected */
static uint64_t slow_until_us;             /* until then, copies take a long time */
static const struct launch *struck_launch; /* the launch that restored it */

static void arm(void *unused)
{
    (void)unused;
    armed = true;
}

void bases_plan(void)
{
    if (faults.any && sim.host_count > 1 && sim_trait(TRAIT_BASE_GOES_BAD)) {
        sim_after(sim_between(500, 9000) * MS, NULL, arm, NULL);
        waited_for = true;
    }
}

/* A base that cannot be protected is superseded only by the next commit. */
bool bases_wait(const struct launch *launch)
{
    bool needs_commit = launch == struck_launch && job.committed <= launch->ranks[0].version.step;
    return waited_for || struck || needs_commit;
}

static bool is_sealed_by_all(const struct launch *launch, uint64_t step)
{
    for (uint32_t r = 0; r < launch->count; r++) {
        if (launch->ranks[r].sealed_step != step) {
            return false;
        }
    }
    return true;
}

static void strike(void *ctx)
{
    struct launch *launch = ctx;
    if (launch->dead || launch != job.launch) {
        return;
    }
    uint64_t for_us = faults_lasting(700, 2500);
    armed = waited_for = false;
    struck = true;
    faults.count++;
    for (uint32_t i = 0; i < sim.host_count; i++) {
        link_isolate(&sim.hosts[i], for_us);
    }
    launch_fail(launch, sim_between(10, 400) * MS, "its trainers are killed after they have sealed a version");
}

/* Leaves the agents no time to send a copy. */
void bases_sealed(struct launch *launch, uint64_t step)
{
    if (armed && launch == job.launch && is_sealed_by_all(launch, step)) {
        sim_after(sim_between(0, 300), NULL, strike, launch);
    }
}

uint64_t bases_slowness_us(void)
{
    bool protecting = (struck && job.launch != NULL && job.launch->phase >= PHASE_RESTORE) || sim.us < slow_until_us;
    return protecting && sim_chance(70) ? sim_between(1, 1500) * MS : 0;
}

static void kill_coordinator(void *ctx)
{
    struct launch *launch = ctx;
    if (launch->dead) {
        return;
    }
    host_kill_agent(launch->ranks[0].host, sim_between(20, 300) * MS);
    if (sim_chance(50)) {
        link_isolate(launch->ranks[launch->count - 1].host, faults_lasting(500, AWAY_MS));
    }
}

void bases_restored(struct launch *launch)
{
    if (!struck) {
        return;
    }
    struck = false;
    struck_launch = launch;
    slow_until_us = sim.us + 3 * S;
    faults_last(sim.us);
    if (sim_chance(75)) {
        damage_only_copies(launch->shape, launch->ranks[0].version);
    }
    if (sim_chance(40)) {
        sim_after(sim_between(0, 300) * MS, NULL, kill_coordinator, launch);
    }
}
