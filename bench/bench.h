/* SPDX-License-Identifier: Apache-2.0
 * What all benchmark programs share: their command line, rounds in which the ways to be compared take turns, medians,
 * and one JSON line per measure. A benchmark never asserts a time; it ends with an error only if it could not run. */
#ifndef TCK_BENCH_BENCH_H
#define TCK_BENCH_BENCH_H

#include "base/status.h"
#include <math.h>
#include <stdbool.h>

#define BENCH_ROUNDS_MAX 200
#define MIB              (UINT64_C(1) << 20)
#define GIB              (UINT64_C(1) << 30)
#define GB               1e9

struct bench {
    uint32_t rounds;
    uint32_t mib;   /* of state, where a benchmark has no size of its own; 0: what it thinks best */
    char dir[512];  /* on the storage to be measured; this benchmark's own, removed when it has ended */
    char huge[540]; /* tmpfs mounted with huge=advise that memory can be taken from; "" if it cannot be had */
};

/* One entry of a program's table: it runs in a process of its own, prints its rows, and calls bench_die if it cannot.
 * The program ends with 0, with 1 if one of them could not run, with 77 if all were skipped. */
struct bench_entry {
    const char *id;
    void (*run)(const struct bench *bench);
};
int bench_main(int argc, char **argv, const struct bench_entry *entries, size_t count);

/* Ends this benchmark with the reason why it could not run. */
_Noreturn void bench_die(const char *fmt, ...) printf_like(1, 2);
/* Ends it because something is missing here. */
_Noreturn void bench_skip(const char *fmt, ...) printf_like(1, 2);
/* bench_die if status is an error; err may be NULL. */
void bench_check(tck_status_t status, const struct error *err, const char *what);
void *bench_alloc(size_t bytes);

/* ---- rounds ---------------------------------------------------------------------------------------------------- */

/* What one go cost: from bench_start to bench_stop. */
struct bench_go {
    double seconds, cpu; /* cpu: of the whole process, user and system */
};
void bench_start(struct bench_go *go);
void bench_stop(struct bench_go *go);

/* One of the ways that are compared. run times itself, so that making and removing things need not count. */
struct bench_way {
    const char *name;
    void (*run)(void *ctx, struct bench_go *go);
    void *ctx;
    struct bench_go goes[BENCH_ROUNDS_MAX];
};

/* One go of each to warm up, then `rounds` rounds of one go of each, every round beginning with another one. */
void bench_rounds(uint32_t rounds, struct bench_way *ways, uint32_t count);

struct spread {
    double median;
    double spread; /* distance of the quartiles, as a part of the median */
};
struct spread bench_spread(const double *samples, uint32_t count);
struct spread bench_seconds(const struct bench_way *way, uint32_t rounds);
struct spread bench_cpu(const struct bench_way *way, uint32_t rounds);
/* Ratio of the medians, and the spread of the rounds' own ratios. */
struct spread bench_ratio(const struct bench_way *numerator, const struct bench_way *denominator, uint32_t rounds);
/* The way with the least median time. */
const struct bench_way *bench_best(const struct bench_way *ways, uint32_t count, uint32_t rounds);
/* The one with the least processor time. */
const struct bench_way *bench_best_cpu(const struct bench_way *ways, uint32_t count, uint32_t rounds);

/* ---- rows ------------------------------------------------------------------------------------------------------ */

enum bench_better { BENCH_LESS, BENCH_MORE };

struct bench_row {
    const char *id, *what, *unit;
    struct spread value;
    enum bench_better better;
    double goal; /* NAN: none */
    uint32_t rounds;
    const char *reference; /* what it was compared with, and the value of that */
    double reference_value;
    const char *reference_unit;
};
void bench_print(const struct bench_row *row);

#endif
