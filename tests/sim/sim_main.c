/* SPDX-License-Identifier: Apache-2.0
 * Runs schedules:
 *
 *   sim [--seeds FILE] [--seed S] [--count N] [--jobs N] [--verbose]
 *
 * first those of FILE (one seed a line, the rest of the line says what it once found), then N from S on. Exit status 1
 * at the first broken promise. */
#include "sim.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define JOBS_MAX 64

struct arguments {
    const char *seeds;
    uint64_t seed, count, jobs;
    bool verbose;
};

static void add(struct totals *sum, const struct totals *t)
{
    sum->schedules += t->schedules;
    sum->events += t->events;
    sum->commits += t->commits;
    sum->recoveries += t->recoveries;
    sum->from_storage += t->from_storage;
    sum->publishes += t->publishes;
    sum->faults += t->faults;
    sum->superseded_plans += t->superseded_plans;
    sum->lost_bases += t->lost_bases;
}

static bool run_one(struct sim *s, uint64_t seed, bool verbose, struct totals *sum)
{
    bool ok = sim_run(s, seed, verbose);
    add(sum, &s->totals);
    return ok;
}

/* The file's schedules; all of them, so that a change shows all it breaks. */
static bool run_seeds(struct sim *s, const struct arguments *a, struct totals *sum)
{
    FILE *file = a->seeds == NULL ? NULL : fopen(a->seeds, "r");
    if (a->seeds != NULL && file == NULL) {
        fprintf(stderr, "%s cannot be read\n", a->seeds);
        return false;
    }
    bool ok = true;
    char line[512];
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        char *end;
        uint64_t seed = strtoull(line, &end, 10);
        ok &= end == line || run_one(s, seed, a->verbose, sum);
    }
    if (file != NULL) {
        fclose(file);
    }
    return ok;
}

/* Every jobs-th seed, from the job's own on. */
static bool run_range(struct sim *s, const struct arguments *a, uint64_t job, struct totals *sum)
{
    bool ok = true;
    for (uint64_t i = job; i < a->count && ok; i += a->jobs) {
        ok = run_one(s, a->seed + i, a->verbose, sum);
    }
    return ok;
}

/* ---- several processes ----------------------------------------------------------------------------------------- */

/* Starts the job; its sums come through the pipe, whose reading end is returned (-1: not started). */
static int start_job(struct sim *s, const struct arguments *a, uint64_t job)
{
    int ends[2];
    if (pipe(ends) < 0) {
        return -1;
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct totals sum = {0};
        bool ok = run_range(s, a, job, &sum);
        fflush(NULL);
        ok &= write(ends[1], &sum, sizeof(sum)) == (ssize_t)sizeof(sum);
        _exit(ok ? 0 : 1);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return -1;
    }
    return ends[0];
}

static bool run_jobs(struct sim *s, const struct arguments *a, struct totals *sum)
{
    int from[JOBS_MAX], status;
    bool ok = true;
    for (uint64_t job = 0; job < a->jobs; job++) {
        from[job] = start_job(s, a, job);
    }
    for (uint64_t job = 0; job < a->jobs; job++) {
        struct totals t;
        if (from[job] < 0 || read(from[job], &t, sizeof(t)) != (ssize_t)sizeof(t)) {
            ok = false;
            continue;
        }
        add(sum, &t);
        close(from[job]);
    }
    while (wait(&status) > 0) {
        ok &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return ok;
}

/* ---- arguments and sums ---------------------------------------------------------------------------------------- */

static bool parse_value(const char *name, const char *value, struct arguments *a)
{
    uint64_t *const numbers[] = {&a->seed, &a->count, &a->jobs};
    static const char *const names[] = {"--seed", "--count", "--jobs"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) == 0) {
            *numbers[i] = strtoull(value, NULL, 10);
            return true;
        }
    }
    a->seeds = value;
    return strcmp(name, "--seeds") == 0;
}

static bool parse(int argc, char **argv, struct arguments *a)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--verbose") == 0) {
            a->verbose = true;
        } else if (i + 1 == argc || !parse_value(argv[i], argv[i + 1], a)) {
            return false;
        } else {
            i++;
        }
    }
    return a->jobs > 0 && a->jobs <= JOBS_MAX;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void print_sums(const struct totals *t, double took, bool ok)
{
    printf("%" PRIu64 " schedules, %" PRIu64 " events, %" PRIu64 " faults, %" PRIu64 " terms, %" PRIu64
           " of them planned after a newer one, %" PRIu64 " lost bases, %" PRIu64
           " restores from storage only, %" PRIu64 " commits, %" PRIu64 " publishes, %.0f schedules/s, %s\n",
           t->schedules, t->events, t->faults, t->recoveries, t->superseded_plans, t->lost_bases, t->from_storage,
           t->commits, t->publishes, (double)t->schedules / took, ok ? "0 violations" : "VIOLATIONS");
}

int main(int argc, char **argv)
{
    struct arguments a = {.seed = 1, .count = 1, .jobs = 1};
    if (!parse(argc, argv, &a)) {
        fprintf(stderr, "usage: sim [--seeds FILE] [--seed S] [--count N] [--jobs 1..%d] [--verbose]\n", JOBS_MAX);
        return 2;
    }
    struct sim *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return 2;
    }
    struct totals sum = {0};
    double began = seconds();
    bool ok = run_seeds(s, &a, &sum);
    ok = (a.jobs == 1 ? run_range(s, &a, 0, &sum) : run_jobs(s, &a, &sum)) && ok;
    print_sums(&sum, seconds() - began, ok);
    free(s);
    return ok ? 0 : 1;
}
