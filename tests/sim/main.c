/* SPDX-License-Identifier: Apache-2.0
 * Runs schedules, each in a process of its own:
 *
 *   sim [--seeds FILE] [--seed S] [--count N] [--jobs N] [--keep-going] [--verbose] [TRAIT ...]
 *   sim --scale NODES [--ranks RANKS_PER_NODE] [--leaders-from NODES] [--twin-mib MIB] [--chunk-ms MS] [--json]
 *
 * first the seeds of FILE (one seed per line; the rest of the line says what it once found), then N seeds from S on,
 * until the first violation. A TRAIT is one of all of them, not just of some: --buckets: storage is a bucket;
 * --archives: there is an archive; --leaders: leaders relay messages. --leaders-from: tree_from_nodes of the large job,
 * 0 for none. Exit status 1 if there was a violation. */
#include "sim.h"

#include "heap.h"
#include "wrapped.h"

#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define JOBS_MAX   64
#define EVENTS_MAX UINT64_C(20000000)
#define SCHEDULE_S 120 /* of CPU time: a schedule that takes longer hangs in the agent's code */
#define REST_US    (5 * S)
#define SAVE_DIR   "/simulated"

struct arguments {
    const char *seeds;
    uint64_t seed, count, jobs, scale, ranks, leaders_from, twin_mib, chunk_ms;
    bool verbose, keep_going, json, buckets, archives, leaders;
};

/* Shared with the processes that run the schedules. */
struct totals {
    uint64_t schedules, violations, events, faults, launches, restores, lost, commits, publishes, archived, messages,
        transferred;
};
static struct totals *totals;

/* ---- a schedule -------------------------------------------------------------------------------------------------- */

/* The other shape has more or fewer ranks on each machine. */
static void plan_shapes(struct shape shape)
{
    job.newest = job.shapes[0] = shape;
    shape.number = 1;
    shape.ranks_per_host = 3 - shape.ranks_per_host;
    shape.ranks = shape.hosts * shape.ranks_per_host;
    shape.twins = shape.ranks % 2 == 0 ? 3 - shape.twins : 1;
    job.shapes[1] = shape;
}

static void plan_job(void)
{
    uint32_t hosts = (uint32_t)sim_between(1, 4) + (sim_trait(TRAIT_TREE) ? 3 : 0);
    struct shape shape = {.ranks_per_host = (uint32_t)sim_between(1, 2), .twins = 1, .hosts = hosts};
    job = (struct job){.shards = 2,
                       .image_bytes = 8 * (uint32_t)sim_between(16, 80),
                       .step_us = sim_between(5, 60) * MS,
                       .steps = sim_between(20, 120),
                       .save_every = (uint32_t)sim_between(1, 6)};
    shape.ranks = hosts * shape.ranks_per_host;
    job.store_every = job.save_every * (uint32_t)sim_between(1, 6);
    job.copies = hosts == 1 ? 1 : (uint32_t)sim_between(2, hosts < 3 ? hosts : 3);
    if (shape.ranks % 2 == 0 && sim_chance(50)) {
        shape.twins = 2;
    }
    plan_shapes(shape);
    if (sim_trait(TRAIT_OVERLOADED)) { /* the copies of one version take longer than several saves */
        job.step_us = 4 * MS;
        job.save_every = 1;
        job.store_every = 8;
        job.steps = 200;
    }
    if (sim_trait(TRAIT_LONG_COPIES)) {
        job.step_us = 500 * MS;
        job.save_every = 30;
        job.store_every = 60;
        job.steps = 60;
    }
    job.kept = sim_trait(TRAIT_KEEPS_FEW) ? 1 : 3;
    job.archive_every = 2 * job.store_every;
    job.archive_kept = sim_trait(TRAIT_KEEPS_FEW) ? 1 : 2;
    static const uint64_t staggers_us[] = {0, 0, 3 * MS, 400 * MS};
    job.stagger_us = staggers_us[sim_between(0, 3)];
    faults.any = sim_chance(90);
    sim.host_count = hosts + sim_trait(TRAIT_MOVES);
}

void make_hosts(uint32_t hosts, uint32_t slots, bool hasty)
{
    static const char short_times[] =
        ", \"heartbeat_ms\": 100, \"peer_timeout_ms\": 1000, \"storage_timeout_ms\": 3000, "
        "\"version_timeout_ms\": 5000, \"restore_wait_ms\": 3000, \"session_wait_ms\": 8000, \"linger_s\": 3000";
    char text[1024], archive[160] = "", leaders[48] = "";
    if (sim.measure || sim_trait(TRAIT_TREE)) {
        snprintf(leaders, sizeof(leaders), ", \"tree_from_nodes\": %u", sim.measure ? sim.leaders_from : 3);
    }
    if (sim_trait(TRAIT_ARCHIVE)) {
        snprintf(archive, sizeof(archive),
                 ", \"archive_dir\": \"" ARCHIVE_DIR "\", \"save_archive_interval\": %u, \"max_archive_num\": %u",
                 job.archive_every, job.archive_kept);
    }
    snprintf(text, sizeof(text),
             "{\"job\": \"sim\", \"save_dir\": \"%s\", \"runtime_dir\": \"%s/run\", \"copies\": %u, \"slots\": %u, "
             "\"max_restore_tries\": 100, \"max_ckpt_num\": %u, \"storage_clone\": 0, \"memory_pressure\": "
             "\"%s\"%s%s%s%s%s%s}",
             sim_trait(TRAIT_BUCKET) ? "s3://simulated" : sim.save_dir, sim.save_dir, job.copies, slots, job.kept,
             sim_trait(TRAIT_PRESSURE) ? "on" : "off", hasty ? short_times : "",
             sim_trait(TRAIT_DAMAGE) ? ", \"scrub_interval_s\": 3" : "",
             sim_trait(TRAIT_SPREADS) ? ", \"restore_spread\": \"oob\", \"restore_spread_timeout_ms\": 2000" : "",
             sim_trait(TRAIT_BUCKET) ? ", \"audit_file_path\": \"/dev/null\"" : "", leaders, archive);
    hosts_make(hosts, text);
}

static void run_schedule(uint64_t seed, bool verbose)
{
    sim.seed = seed;
    sim.random = seed * 0x2545F4914F6CDD1Du + 1;
    sim.verbose = verbose;
    plan_job();
    make_hosts(sim.host_count, (uint32_t)sim_between(2, 3), true);
    faults_plan();
    sim_after(10 * MS, NULL, launch_begin, NULL);
    uint64_t done_us = 0;
    while ((!job.done || sim.us < done_us + REST_US) && sim_step()) {
        done_us = job.done ? done_us : sim.us;
        if (sim.events > EVENTS_MAX) {
            sim_violation("%" PRIu64 " events without an end", sim.events);
        }
    }
    if (sim.violation[0] == '\0' && !job.lost) {
        judge_end();
    }
}

static void add_totals(void)
{
    totals->schedules++;
    totals->events += sim.events;
    totals->faults += faults.count;
    totals->launches += job.launches;
    totals->restores += job.restores;
    totals->lost += job.lost;
    totals->commits += job.commits;
    totals->publishes += job.publishes;
    totals->archived += job.archived;
    for (uint32_t i = 0; i < sim.host_count; i++) {
        totals->messages += sim.hosts[i].counts.messages;
        totals->transferred += sim.hosts[i].counts.transferred;
    }
}

static void child(uint64_t seed, const struct arguments *a)
{
    heap_begin();
    snprintf(sim.save_dir, sizeof(sim.save_dir), SAVE_DIR);
    sim.buckets = a->buckets;
    sim.archives = a->archives;
    sim.leaders = a->leaders;
    sim.leaders_from = (uint32_t)a->leaders_from;
    sim.twin_mib = (uint32_t)a->twin_mib;
    sim.chunk_us = a->chunk_ms * MS;
    if (a->scale > 0) {
        scale_run((uint32_t)a->scale, (uint32_t)a->ranks, a->json);
    } else {
        alarm(SCHEDULE_S);
        run_schedule(seed, a->verbose);
    }
    add_totals();
    if (sim.violation[0] != '\0') {
        printf("VIOLATION: seed %" PRIu64 " at %.3f s: %s\n", seed, (double)sim.us / (double)S, sim.violation);
    }
    fflush(NULL);
    __real__exit(sim.violation[0] == '\0' ? 0 : 1);
}

static bool run_one(uint64_t seed, const struct arguments *a)
{
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        child(seed, a);
    }
    bool ok = pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (pid > 0 && WIFSIGNALED(status)) {
        printf("VIOLATION: seed %" PRIu64 ": the process dies of signal %d%s\n", seed, WTERMSIG(status),
               WTERMSIG(status) == SIGALRM ? " (it hangs)" : "");
    }
    totals->violations += !ok;
    return ok;
}

/* ---- many -------------------------------------------------------------------------------------------------------- */

static bool run_seeds(const struct arguments *a)
{
    FILE *file = a->seeds != NULL ? fopen(a->seeds, "r") : NULL;
    char line[512];
    bool ok = a->seeds == NULL || file != NULL;
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        char *end;
        uint64_t seed = strtoull(line, &end, 10);
        ok &= end == line || run_one(seed, a);
    }
    if (file != NULL) {
        fclose(file);
    }
    return ok;
}

static bool run_range(const struct arguments *a, uint64_t first)
{
    bool ok = true;
    for (uint64_t i = first; i < a->count && (ok || a->keep_going); i += a->jobs) {
        ok &= run_one(a->seed + i, a);
    }
    return ok;
}

static bool run_jobs(const struct arguments *a)
{
    bool ok = true;
    for (uint64_t i = 1; i < a->jobs; i++) {
        fflush(NULL);
        if (fork() == 0) {
            ok = run_range(a, i);
            fflush(NULL);
            __real__exit(ok ? 0 : 1);
        }
    }
    ok = run_range(a, 0);
    for (int status; wait(&status) > 0;) {
        ok &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return ok;
}

static bool parse(int argc, char **argv, struct arguments *a)
{
    uint64_t *const numbers[] = {&a->seed,  &a->count,        &a->jobs,     &a->scale,
                                 &a->ranks, &a->leaders_from, &a->twin_mib, &a->chunk_ms};
    enum { SEEDS = sizeof(numbers) / sizeof(numbers[0]), VERBOSE, KEEP_GOING, JSON, BUCKETS, ARCHIVES, LEADERS };
    static const struct option options[] = {
        {"seed", required_argument, NULL, 0},          {"count", required_argument, NULL, 1},
        {"jobs", required_argument, NULL, 2},          {"scale", required_argument, NULL, 3},
        {"ranks", required_argument, NULL, 4},         {"leaders-from", required_argument, NULL, 5},
        {"twin-mib", required_argument, NULL, 6},      {"chunk-ms", required_argument, NULL, 7},
        {"seeds", required_argument, NULL, SEEDS},     {"verbose", no_argument, NULL, VERBOSE},
        {"keep-going", no_argument, NULL, KEEP_GOING}, {"json", no_argument, NULL, JSON},
        {"buckets", no_argument, NULL, BUCKETS},       {"archives", no_argument, NULL, ARCHIVES},
        {"leaders", no_argument, NULL, LEADERS},       {0}};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option < 0 || option > LEADERS) {
            return false;
        } else if (option < SEEDS) {
            *numbers[option] = strtoull(optarg, NULL, 10);
        } else if (option == SEEDS) {
            a->seeds = optarg;
        } else {
            bool *const flags[] = {&a->verbose, &a->keep_going, &a->json, &a->buckets, &a->archives, &a->leaders};
            *flags[option - VERBOSE] = true;
        }
    }
    return optind == argc && a->jobs > 0 && a->jobs <= JOBS_MAX;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    struct arguments a = {.seed = 1, .count = 1, .jobs = 1, .ranks = 8, .leaders_from = 64};
    if (!parse(argc, argv, &a)) {
        fprintf(
            stderr,
            "usage: sim [--seeds FILE] [--seed S] [--count N] [--jobs 1..%d] [--keep-going] [--verbose] [--buckets] "
            "[--archives] [--leaders]\n"
            "       sim --scale NODES [--ranks RANKS_PER_NODE] [--leaders-from NODES] [--twin-mib MIB] [--chunk-ms MS] "
            "[--json]\n",
            JOBS_MAX);
        return 2;
    }
    setenv("NOTIFY_SOCKET", "simulated", 1);
    setenv("TIERCKPT_SUPERVISOR", "1", 1);
    totals = __real_mmap(NULL, sizeof(*totals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double began = seconds();
    bool ok = run_seeds(&a);
    ok &= run_jobs(&a);
    const struct totals *t = totals;
    printf("%" PRIu64 " schedules, %" PRIu64 " events, %" PRIu64 " faults, %" PRIu64 " launches, %" PRIu64
           " restores, %" PRIu64 " told losses, %" PRIu64 " commits, %" PRIu64 " publishes, %" PRIu64
           " copies in archives, %" PRIu64 " messages, %.1f schedules/s, %" PRIu64 " violations\n",
           t->schedules, t->events, t->faults, t->launches, t->restores, t->lost, t->commits, t->publishes, t->archived,
           t->messages, (double)t->schedules / (seconds() - began), t->violations);
    return ok ? 0 : 1;
}
