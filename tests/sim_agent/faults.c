/* SPDX-License-Identifier: Apache-2.0
 * What goes wrong, when, as the seed has it. */
#include "sim.h"

struct faults faults;

static uint64_t pause_ms; /* between faults, at most: as the seed has it */

static struct host *any_host(void)
{
    return &sim.hosts[sim_between(0, sim.host_count - 1)];
}

static void kill_agents(void)
{
    uint32_t chance = sim_chance(25) ? 100 : 0; /* all of them, at the same moment */
    struct host *one = any_host();
    for (uint32_t i = 0; i < sim.host_count; i++) {
        if (&sim.hosts[i] == one || sim_chance(chance)) {
            host_kill_agent(&sim.hosts[i], sim_between(20, 800) * MS);
        }
    }
}

/* In the middle of what it does, as soon as it has done so much of it. */
static void die_soon(void)
{
    struct host *host = any_host();
    host->dies_in = (uint32_t)sim_between(1, 60);
    sim_say("the agent of %s is about to die", host->name);
}

/* Sometimes two, with all copies of what both had. */
static void lose(void)
{
    host_lose(any_host(), sim_between(200, 3000) * MS);
    if (sim_chance(20)) {
        host_lose(any_host(), sim_between(200, 3000) * MS);
    }
}

static void hear_again(void *ctx)
{
    struct host *host = ctx;
    host->deaf = false;
    faults.last_us = sim.us;
}

static void refuse(void)
{
    bool all = sim_chance(60);
    struct host *one = any_host();
    uint64_t for_us = sim_between(100, 5000) * MS;
    sim_say("storage refuses %s", all ? "all" : one->name);
    for (uint32_t i = 0; i < sim.host_count; i++) {
        if (all || &sim.hosts[i] == one) {
            sim.hosts[i].deaf = true;
            sim_after(for_us, NULL, hear_again, &sim.hosts[i]);
        }
    }
}

static void cut(void)
{
    struct host *a = any_host(), *b = any_host();
    if (a != b) {
        sim_say("sessions of %s and %s are cut", a->name, b->name);
        link_cut(a, b);
    }
}

static void inject(void *unused)
{
    (void)unused;
    if (sim.us > faults.until_us || job.done || job.launches == 0) {
        return;
    }
    uint64_t dice = sim_between(0, 99);
    faults.count++;
    faults.last_us = sim.us;
    if (dice < 20) {
        kill_agents();
    } else if (dice < 35) {
        die_soon();
    } else if (dice < 50) {
        lose();
    } else if (dice < 65) {
        refuse();
    } else if (dice < 80) {
        cut();
    } else if (job.launch) {
        launch_fail(job.launch, sim_between(10, 1000) * MS, "its trainers are killed");
    }
    sim_after(sim_between(1, pause_ms) * MS, NULL, inject, NULL);
}

void faults_plan(void)
{
    static const uint64_t pauses_ms[] = {50, 300, 1000, 4000};
    pause_ms = pauses_ms[sim_between(0, 3)];
    if (faults.any) {
        faults.until_us = sim_between(1, 8) * S;
        sim_after(sim_between(50, 3000) * MS, NULL, inject, NULL);
    }
}
