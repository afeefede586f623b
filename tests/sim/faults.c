/* SPDX-License-Identifier: Apache-2.0
 * Injects faults: the seed determines which, and when. */
#include "sim.h"

#include "agent/replication/peer_rpc.h"

#include <stdlib.h>

struct faults faults;

static uint64_t pause_ms; /* the longest pause between faults, chosen by the seed */

static struct host *any_host(void)
{
    return &sim.hosts[sim_between(0, sim.host_count - 1)];
}

static void kill_agents(void)
{
    uint32_t chance = sim_chance(25) ? 100 : 0; /* all agents at the same time */
    struct host *one = any_host();
    for (uint32_t i = 0; i < sim.host_count; i++) {
        if (&sim.hosts[i] == one || sim_chance(chance)) {
            host_kill_agent(&sim.hosts[i], sim_between(20, 800) * MS);
        }
    }
}

/* Lets an agent die after a number of externally visible operations. */
static void die_soon(void)
{
    struct host *host = any_host();
    host->dies_in = (uint32_t)sim_between(1, 60);
    sim_log("the agent of %s is about to die", host->name);
}

/* Sometimes two machines, with all copies of the shards that both had. */
static void lose_hosts(void)
{
    struct host *host = any_host();
    host_lose(host, sim_between(200, 3000) * MS);
    for (uint32_t i = 0; i < sim.host_count && sim_trait(TRAIT_DOMAINS); i++) {
        if (sim.hosts[i].domain == host->domain && &sim.hosts[i] != host) {
            host_lose(&sim.hosts[i], sim_between(200, 3000) * MS);
        }
    }
    if (sim_chance(20)) {
        host_lose(any_host(), sim_between(200, 3000) * MS);
    }
}

void faults_last(uint64_t us)
{
    faults.last_us = us > faults.last_us ? us : faults.last_us;
}

uint64_t faults_lasting(uint64_t low_ms, uint64_t high_ms)
{
    uint64_t for_us = sim_between(low_ms, high_ms) * MS;
    faults_last(sim.us + for_us);
    return for_us;
}

static void lose_supervisor(void)
{
    host_forget(any_host(), sim_between(20, 800) * MS);
}

static void stop(void)
{
    host_stop_agent(any_host(), faults_lasting(20, sim_chance(50) ? 200 : 5000));
}

/* Jumps by more than any time-out, but by less than an agent without trainers lives. */
static void jump_clock(void)
{
    host_jump_clock(any_host(), sim_between(1, sim_chance(50) ? 200 : 600000) * MS);
}

static void end_refusal(void *ctx)
{
    struct host *host = ctx;
    host->refused_by[AT_SAVE_DIR] = false;
}

static void refuse(struct host *host, uint64_t for_us)
{
    host->refused_by[AT_SAVE_DIR] = true;
    sim_after(for_us, NULL, end_refusal, host);
}

static void fill(struct host *host, uint64_t for_us)
{
    host->full_until_us[AT_SAVE_DIR] = sim.us + for_us;
}

static void hang(struct host *host, uint64_t for_us)
{
    host->hangs_until_us[AT_SAVE_DIR] = sim.us + for_us;
}

static void end_archive_refusal(void *ctx)
{
    struct host *host = ctx;
    host->refused_by[AT_ARCHIVE] = false;
}

static void refuse_archive(struct host *host, uint64_t for_us)
{
    host->refused_by[AT_ARCHIVE] = true;
    sim_after(for_us, NULL, end_archive_refusal, host);
}

static void fill_archive(struct host *host, uint64_t for_us)
{
    host->full_until_us[AT_ARCHIVE] = sim.us + for_us;
}

static void hang_archive(struct host *host, uint64_t for_us)
{
    host->hangs_until_us[AT_ARCHIVE] = sim.us + for_us;
}

static void storage(const char *what, void (*fault)(struct host *host, uint64_t for_us))
{
    bool all = sim_chance(60);
    struct host *one = any_host();
    uint64_t for_us = faults_lasting(100, 5000);
    sim_log("storage %s %s for %.3f s", what, all ? "all" : one->name, (double)for_us / (double)S);
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

static void storage_fills(void)
{
    storage("is full for", fill);
}

/* What was saved last is then in the archive alone, if it is there. */
static void need_archive(void *unused)
{
    (void)unused;
    if (job.done) {
        return;
    }
    faults.count++;
    faults_last(sim.us);
    sim_log("all machines are lost, and a version in save_dir is damaged");
    doubts_tear();
    if (sim_chance(40)) { /* and cannot be read for a while, which starts have to wait for */
        storage("of the archive refuses", refuse_archive);
    }
    for (uint32_t i = 0; i < sim.host_count; i++) {
        host_lose(&sim.hosts[i], sim_between(200, 1500) * MS);
    }
}

void faults_archived(void)
{
    static bool done;
    if (!done && faults.any && !sim_trait(TRAIT_BUCKET) && sim_chance(50)) {
        done = true;
        sim_after(sim_between(10, 500) * MS, NULL, need_archive, NULL);
    }
}

static void archive_fails(void)
{
    static void (*const fault[])(struct host * host, uint64_t for_us) = {refuse_archive, fill_archive, hang_archive};
    static const char *const what[] = {"of the archive refuses", "of the archive is full for",
                                       "of the archive hangs for"};
    uint32_t kind = (uint32_t)sim_between(0, 2);
    storage(what[kind], fault[kind]);
}

static void cut(void)
{
    struct host *a = any_host(), *b = any_host();
    uint64_t for_us = sim_chance(50) ? faults_lasting(50, 3000) : 0;
    if (a == b) {
        return;
    }
    sim_log("sessions of %s and %s are %s", a->name, b->name, for_us ? "stalled" : "cut");
    if (for_us) {
        link_stall(a, b, for_us);
    } else {
        link_cut(a, b);
    }
}

static void limit_memory(void)
{
    struct host *host = any_host();
    sim_log("%s is short of memory", host->name);
    host->short_until_us = sim.us + faults_lasting(20, 1000);
}

static void stop_noise(void *ctx)
{
    ((struct host *)ctx)->noisy = false;
}

static void start_noise(void)
{
    struct host *host = any_host();
    sim_log("%s receives wrong bytes", host->name);
    host->noisy = true;
    sim_after(faults_lasting(100, 3000), NULL, stop_noise, host);
}

static void kill_trainers(void)
{
    if (job.launch != NULL) {
        launch_fail(job.launch, sim_between(10, 1000) * MS, "its trainers are killed");
    }
}

/* Freezes one of the trainers in the middle of its next copy. */
static void freeze(void)
{
    struct rank *rank = job.launch != NULL ? &job.launch->ranks[sim_between(0, job.launch->count - 1)] : NULL;
    if (rank != NULL) {
        rank->freezes_us = faults_lasting(20, sim_chance(50) ? 500 : 7000);
        sim_log("rank %u will be frozen for %.3f s", rank->number, (double)rank->freezes_us / (double)S);
    }
}

static void interrupt(void)
{
    any_host()->interrupts = true;
}

static void kill_now(void *ctx)
{
    host_kill_agent(ctx, sim_between(20, 150) * MS);
}

struct pair {
    struct host *a, *b;
};

static struct pair *pair_of(struct host *a, struct host *b)
{
    struct pair *pair = malloc(sizeof(*pair));
    if (pair == NULL) {
        abort();
    }
    *pair = (struct pair){a, b};
    return pair;
}

static void cut_now(void *ctx)
{
    struct pair *pair = ctx;
    link_cut(pair->a, pair->b);
    free(pair);
}

/* The bytes stay in flight: the receiver may notice the end of the connection before the last of them arrive.
 */
uint64_t faults_interrupt(struct host *from, struct host *to, const void *chunk)
{
    uint64_t at_us = sim_between(0, 20) * MS;
    uint32_t kind = (uint32_t)sim_between(0, sim_trait(TRAIT_DAMAGE) ? 3 : 2);
    static const char *const what[] = {", and their sender dies", ", and the sessions are cut", "", ", and damaged"};
    from->interrupts = false;
    sim_log("bytes from %s to %s are in flight for a long time%s", from->name, to->name, what[kind]);
    if (kind == 0) {
        sim_after(at_us, NULL, kill_now, from);
    } else if (kind == 1) {
        sim_after(at_us, NULL, cut_now, pair_of(from, to));
    } else if (kind == 3) {
        damage_sent(from, chunk);
    }
    return faults_lasting(100, kind == 3 ? 5000 : 2000);
}

/* Isolates a host other than the coordinator's at a time when others may need what only that host has reported. */
static void isolate(void)
{
    struct host *host = any_host();
    if (host->index > 0) {
        host->isolates = true;
    }
}

static void isolate_now(void *ctx)
{
    link_isolate(ctx, faults_lasting(500, 9000));
}

static void squeeze(void)
{
    pressure_squeeze(any_host());
}

static void fail_network(void)
{
    link_network_fails(any_host(), faults_lasting(500, 9000));
}

/* ---- in the middle of drains and recoveries ---------------------------------------------------------------------- */

/* A pending drain waits for the pause after a failed drain, and the agent that is responsible for it dies; or one node
 * is still working on the drain that failed on another node when the next drain begins. */
void faults_strike_last(struct host *coordinator)
{
    static bool done;
    if (done || !faults.any || !sim_trait(TRAIT_LAST_DRAIN_FAILS)) {
        return;
    }
    done = true;
    if (sim_chance(60)) {
        storage("refuses", refuse);
        sim_after(faults_lasting(50, 2500), NULL, kill_now, coordinator);
    } else {
        hang(any_host(), faults_lasting(1200, 2900));
        refuse(any_host(), faults_lasting(50, 900));
    }
}

static void stop_coordinator(void *ctx)
{
    host_stop_agent(ctx, faults_lasting(2500, 6000));
}

void faults_strike_recovery(struct host *coordinator)
{
    struct host *other = any_host();
    if (sim_trait(TRAIT_STANDS_STILL) && sim.us < faults.until_us && other != coordinator && sim_chance(50)) {
        sim_log("messages between %s and %s are delayed", coordinator->name, other->name);
        link_stall(coordinator, other, faults_lasting(20, 800));
        sim_after(sim_between(0, 200) * MS, NULL, stop_coordinator, coordinator);
    }
}

/* Delays this host's report about its drain, while other hosts' drains fail and the next drain begins. */
static void delay_report(struct host *host)
{
    if (!sim_trait(TRAIT_LATE_REPORTS) || sim.us >= faults.until_us || !sim_chance(40)) {
        return;
    }
    sim_log("a report of %s is delayed", host->name);
    for (uint32_t i = 0; i < sim.host_count; i++) {
        if (&sim.hosts[i] != host) {
            link_stall(host, &sim.hosts[i], faults_lasting(800, 3000));
            refuse(&sim.hosts[i], faults_lasting(50, 900));
        }
    }
}

void __real_rpc_send_coordinator(struct term_context *tc, uint16_t type, struct writer *w);
void __wrap_rpc_send_coordinator(struct term_context *tc, uint16_t type, struct writer *w);

void __wrap_rpc_send_coordinator(struct term_context *tc, uint16_t type, struct writer *w)
{
    struct host *host = sim.current;
    if (type == WIRE_DRAINED) {
        delay_report(host);
    }
    __real_rpc_send_coordinator(tc, type, w);
    if (type == WIRE_READY && host->isolates && sim.us < faults.until_us) {
        host->isolates = false;
        sim_after(sim_between(50, 2000), NULL, isolate_now, host);
    }
}

/* Faults that are injected only in schedules with the trait. */
static const struct {
    enum trait trait;
    void (*fault)(void);
} special[] = {{TRAIT_FREEZES, freeze},         {TRAIT_SLOW, interrupt},        {TRAIT_ISOLATES, isolate},
               {TRAIT_SECOND, launch_second},   {TRAIT_FULL, storage_fills},    {TRAIT_POWER, power_go_soon},
               {TRAIT_CLOCK_JUMPS, jump_clock}, {TRAIT_NETWORKS, fail_network}, {TRAIT_PRESSURE, squeeze},
               {TRAIT_ARCHIVE, archive_fails}};

static bool inject_special(void)
{
    for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++) {
        if (sim_trait(special[i].trait) && sim_chance(30)) {
            special[i].fault();
            return true;
        }
    }
    return false;
}

/* The frequency of each fault, in percent. */
static const struct {
    uint32_t share;
    void (*fault)(void);
} kinds[] = {{18, kill_agents},  {13, die_soon},   {12, lose_hosts},    {10, storage_errors},
             {7, storage_hangs}, {11, cut},        {15, kill_trainers}, {6, stop},
             {2, limit_memory},  {4, start_noise}, {2, lose_supervisor}};

static void inject(void *unused)
{
    (void)unused;
    if (sim.us > faults.until_us || job.done || job.launches == 0) {
        return;
    }
    faults.count++;
    faults.last_us = sim.us > faults.last_us ? sim.us : faults.last_us;
    if (!inject_special()) {
        uint32_t dice = (uint32_t)sim_between(0, 99), kind = 0;
        for (; dice >= kinds[kind].share; kind++) {
            dice -= kinds[kind].share;
        }
        kinds[kind].fault();
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
    damage_plan();
    bases_plan();
}
