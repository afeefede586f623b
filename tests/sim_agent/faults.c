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

/* The fault is over then. */
static uint64_t lasting(uint64_t low_ms, uint64_t high_ms)
{
    uint64_t for_us = sim_between(low_ms, high_ms) * MS;
    faults.last_us = sim.us + for_us > faults.last_us ? sim.us + for_us : faults.last_us;
    return for_us;
}

static void forget(void)
{
    host_forget(any_host(), sim_between(20, 800) * MS);
}

static void stop(void)
{
    host_stop_agent(any_host(), lasting(20, sim_chance(50) ? 200 : 5000));
}

static void hear_again(void *ctx)
{
    struct host *host = ctx;
    host->deaf = false;
}

static void refuse(struct host *host, uint64_t for_us)
{
    host->deaf = true;
    sim_after(for_us, NULL, hear_again, host);
}

static void hang(struct host *host, uint64_t for_us)
{
    host->hangs_until_us = sim.us + for_us;
}

static void storage(const char *what, void (*fault)(struct host *host, uint64_t for_us))
{
    bool all = sim_chance(60);
    struct host *one = any_host();
    uint64_t for_us = lasting(100, 5000);
    sim_say("storage %s %s for %.3f s", what, all ? "all" : one->name, (double)for_us / (double)S);
    for (uint32_t i = 0; i < sim.host_count; i++) {
        if (all || &sim.hosts[i] == one) {
            fault(&sim.hosts[i], for_us);
        }
    }
}

static void storage_errors(void)
{
    storage("refuses", refuse);
}

static void storage_hangs(void)
{
    storage("hangs for", hang);
}

static void cut(void)
{
    struct host *a = any_host(), *b = any_host();
    uint64_t for_us = sim_chance(50) ? lasting(50, 3000) : 0;
    if (a == b) {
        return;
    }
    sim_say("sessions of %s and %s are %s", a->name, b->name, for_us ? "stalled" : "cut");
    if (for_us) {
        link_stall(a, b, for_us);
    } else {
        link_cut(a, b);
    }
}

static void run_short(void)
{
    struct host *host = any_host();
    sim_say("%s is short of memory", host->name);
    host->short_until_us = sim.us + lasting(20, 1000);
}

static void make_no_noise(void *ctx)
{
    ((struct host *)ctx)->noisy = false;
}

static void make_noise(void)
{
    struct host *host = any_host();
    sim_say("%s receives wrong bytes", host->name);
    host->noisy = true;
    sim_after(lasting(100, 3000), NULL, make_no_noise, host);
}

static void kill_trainers(void)
{
    if (job.launch) {
        launch_fail(job.launch, sim_between(10, 1000) * MS, "its trainers are killed");
    }
}

/* How often: of 100. */
static const struct {
    uint32_t share;
    void (*fault)(void);
} kinds[] = {{18, kill_agents},   {13, die_soon}, {12, lose},     {10, storage_errors}, {7, storage_hangs}, {11, cut},
             {15, kill_trainers}, {6, stop},      {2, run_short}, {4, make_noise},      {2, forget}};

static void inject(void *unused)
{
    (void)unused;
    if (sim.us > faults.until_us || job.done || job.launches == 0) {
        return;
    }
    uint32_t dice = (uint32_t)sim_between(0, 99), kind = 0;
    faults.count++;
    faults.last_us = sim.us > faults.last_us ? sim.us : faults.last_us;
    for (; dice >= kinds[kind].share; kind++) {
        dice -= kinds[kind].share;
    }
    kinds[kind].fault();
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
