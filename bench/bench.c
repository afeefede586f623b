/* SPDX-License-Identifier: Apache-2.0
 * Rounds, medians and JSON lines of the benchmark programs; each benchmark in a child process with a directory and a
 * mount of its own. */
#include "bench.h"

#include "base/clock.h"
#include "base/json.h"
#include <errno.h>
#include <ftw.h>
#include <getopt.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEFAULT_ROUNDS 7
#define EXIT_SKIPPED   77

static const char *current_id;

/* ---- failing --------------------------------------------------------------------------------------------------- */

static void print_line(json_t *object)
{
    char *text = object == NULL ? NULL : json_print(object, false);
    if (text != NULL) {
        puts(text);
        fflush(stdout);
    }
    free(text);
    json_free(object);
}

static void print_reason(const char *id, const char *kind, const char *why)
{
    json_t *line = json_object();
    (void)json_add_str(line, "id", id);
    (void)json_add_str(line, kind, why);
    print_line(line);
}

static void print_error(const char *id, const char *why)
{
    print_reason(id, "error", why);
}

void bench_die(const char *fmt, ...)
{
    char text[ERROR_TEXT_BYTES + 64];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    print_error(current_id, text);
    _exit(EXIT_FAILURE);
}

void bench_skip(const char *fmt, ...)
{
    char text[ERROR_TEXT_BYTES + 64];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    print_reason(current_id, "skipped", text);
    _exit(EXIT_SKIPPED);
}

void bench_check(tck_status_t status, const struct error *err, const char *what)
{
    if (status != TCK_OK) {
        bench_die("%s: %s", what, err != NULL && err->text[0] != '\0' ? err->text : status_text(status));
    }
}

void *bench_alloc(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL) {
        bench_die("out of memory: %zu bytes", bytes);
    }
    return memory;
}

/* ---- rounds ---------------------------------------------------------------------------------------------------- */

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

void bench_start(struct bench_go *go)
{
    go->cpu = -cpu_seconds();
    go->seconds = -(double)clock_ns() / 1e9;
}

void bench_stop(struct bench_go *go)
{
    go->seconds += (double)clock_ns() / 1e9;
    go->cpu += cpu_seconds();
}

void bench_rounds(uint32_t rounds, struct bench_way *ways, uint32_t count)
{
    struct bench_go warm_up;
    for (uint32_t i = 0; i < count; i++) {
        ways[i].run(ways[i].ctx, &warm_up);
    }
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < count; i++) {
            struct bench_way *way = &ways[(i + round) % count];
            way->run(way->ctx, &way->goes[round]);
        }
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *sorted, uint32_t count, double q)
{
    double at = q * (count - 1);
    uint32_t below = (uint32_t)at;
    uint32_t above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (at - below) * (sorted[above] - sorted[below]);
}

struct spread bench_spread(const double *samples, uint32_t count)
{
    double sorted[BENCH_ROUNDS_MAX] = {0};
    memcpy(sorted, samples, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), compare);
    double median = quantile(sorted, count, 0.5);
    return (struct spread){median, (quantile(sorted, count, 0.75) - quantile(sorted, count, 0.25)) / median};
}

struct spread bench_seconds(const struct bench_way *way, uint32_t rounds)
{
    double samples[BENCH_ROUNDS_MAX] = {0};
    for (uint32_t i = 0; i < rounds; i++) {
        samples[i] = way->goes[i].seconds;
    }
    return bench_spread(samples, rounds);
}

struct spread bench_cpu(const struct bench_way *way, uint32_t rounds)
{
    double samples[BENCH_ROUNDS_MAX] = {0};
    for (uint32_t i = 0; i < rounds; i++) {
        samples[i] = way->goes[i].cpu;
    }
    return bench_spread(samples, rounds);
}

struct spread bench_ratio(const struct bench_way *numerator, const struct bench_way *denominator, uint32_t rounds)
{
    double ratios[BENCH_ROUNDS_MAX] = {0};
    for (uint32_t i = 0; i < rounds; i++) {
        ratios[i] = numerator->goes[i].seconds / denominator->goes[i].seconds;
    }
    double median = bench_seconds(numerator, rounds).median / bench_seconds(denominator, rounds).median;
    return (struct spread){median, bench_spread(ratios, rounds).spread};
}

static const struct bench_way *least(const struct bench_way *ways, uint32_t count, uint32_t rounds,
                                     struct spread (*of)(const struct bench_way *way, uint32_t rounds))
{
    const struct bench_way *best = &ways[0];
    for (uint32_t i = 1; i < count; i++) {
        if (of(&ways[i], rounds).median < of(best, rounds).median) {
            best = &ways[i];
        }
    }
    return best;
}

const struct bench_way *bench_best(const struct bench_way *ways, uint32_t count, uint32_t rounds)
{
    return least(ways, count, rounds, bench_seconds);
}

const struct bench_way *bench_best_cpu(const struct bench_way *ways, uint32_t count, uint32_t rounds)
{
    return least(ways, count, rounds, bench_cpu);
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* Four digits: more would be noise. */
static bool add_number(json_t *line, const char *key, double value)
{
    char text[32];
    snprintf(text, sizeof(text), "%.4g", value);
    return json_add_f64(line, key, strtod(text, NULL));
}

void bench_print(const struct bench_row *row)
{
    json_t *line = json_object();
    bool met = row->better == BENCH_LESS ? row->value.median <= row->goal : row->value.median >= row->goal;
    bool ok = json_add_str(line, "id", row->id) && json_add_str(line, "what", row->what) &&
              add_number(line, "value", row->value.median) && json_add_str(line, "unit", row->unit) &&
              json_add_str(line, "better", row->better == BENCH_LESS ? "less" : "more");
    if (!isnan(row->goal)) {
        ok = ok && add_number(line, "goal", row->goal) && json_add_bool(line, "met", met);
    }
    ok = ok && json_add_u64(line, "rounds", row->rounds) && add_number(line, "spread", row->value.spread);
    if (row->reference != NULL) {
        ok = ok && json_add_str(line, "reference", row->reference) &&
             add_number(line, "reference_value", row->reference_value) &&
             json_add_str(line, "reference_unit", row->reference_unit);
    }
    if (!ok) {
        bench_die("out of memory");
    }
    print_line(line);
}

/* ---- one benchmark in a process of its own --------------------------------------------------------------------- */

/* Huge pages of shared memory need a mount that allows them; it is seen by this process and its children only. */
static void mount_huge(struct bench *bench)
{
    snprintf(bench->huge, sizeof(bench->huge), "%s/huge", bench->dir);
    if (mkdir(bench->huge, 0700) != 0 || unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", bench->huge, "tmpfs", MS_NOSUID | MS_NODEV, "huge=advise,mode=0700") != 0) {
        bench->huge[0] = '\0';
    }
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

/* Its exit status. */
static int run_entry(const struct bench_entry *entry, const char *parent, const struct bench *common)
{
    struct bench bench = *common;
    current_id = entry->id;
    snprintf(bench.dir, sizeof(bench.dir), "%s/bench-XXXXXX", parent);
    if (mkdtemp(bench.dir) == NULL) {
        print_error(entry->id, strerror(errno));
        return EXIT_FAILURE;
    }
    pid_t pid = fork();
    if (pid == 0) {
        mount_huge(&bench);
        entry->run(&bench);
        exit(EXIT_SUCCESS);
    }
    int status = -1;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (pid < 0 || WIFSIGNALED(status)) {
        print_error(entry->id, pid < 0 ? "cannot fork" : strsignal(WTERMSIG(status)));
    }
    nftw(bench.dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}

/* "G5" means G5.verified, too. */
static bool is_wanted(const char *id, char **wanted, int count)
{
    for (int i = 0; i < count; i++) {
        size_t len = strlen(wanted[i]);

        if (strncmp(id, wanted[i], len) == 0 && (id[len] == '\0' || id[len] == '.')) {
            return true;
        }
    }
    return count == 0;
}

static int run_entries(const struct bench_entry *entries, size_t count, char **wanted, int wanted_count,
                       const char *dir, const struct bench *common)
{
    uint32_t ran = 0, skipped = 0;
    bool ok = true;
    for (size_t i = 0; i < count; i++) {
        if (is_wanted(entries[i].id, wanted, wanted_count)) {
            int status = run_entry(&entries[i], dir, common);
            skipped += status == EXIT_SKIPPED;
            ok = ok && (status == EXIT_SUCCESS || status == EXIT_SKIPPED);
            ran++;
        }
    }
    return !ok ? EXIT_FAILURE : ran > 0 && skipped == ran ? EXIT_SKIPPED : EXIT_SUCCESS;
}

int bench_main(int argc, char **argv, const struct bench_entry *entries, size_t count)
{
    static const struct option options[] = {{"rounds", required_argument, NULL, 'r'},
                                            {"dir", required_argument, NULL, 'd'},
                                            {"mib", required_argument, NULL, 'm'},
                                            {0}};
    struct bench common = {.rounds = DEFAULT_ROUNDS};
    const char *dir = ".";
    int opt;
    while ((opt = getopt_long(argc, argv, "r:d:m:", options, NULL)) != -1) {
        switch (opt) {
        case 'r':
            common.rounds = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'd':
            dir = optarg;
            break;
        case 'm':
            common.mib = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        default:
            fprintf(stderr, "usage: %s [--rounds N] [--dir DIR] [--mib N] [ID...]\n", argv[0]);
            return 2;
        }
    }
    if (common.rounds < 1 || common.rounds > BENCH_ROUNDS_MAX) {
        fprintf(stderr, "--rounds takes 1 to %d\n", BENCH_ROUNDS_MAX);
        return 2;
    }
    return run_entries(entries, count, argv + optind, argc - optind, dir, &common);
}
