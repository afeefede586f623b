/* SPDX-License-Identifier: Apache-2.0
 * What a snapshot costs the trainer, through the public API with a real agent: G1 stall, G2 first snapshot, G3
 * overlapped post, G10 very many small tensors. */
#include "buffer.h"
#include "trainer.h"

#include <stdio.h>
#include <string.h>

#define STATE_BYTES (512 * MIB)
#define STARTS      3 /* of G2: each needs a new agent */
#define UNSTEADY    4 /* snapshots after which every slot has been written once */

/* ---- ways ------------------------------------------------------------------------------------------------------ */

static void run_snapshot(void *ctx, struct bench_go *go)
{
    trainer_snapshot(ctx, go);
}

static void run_post(void *ctx, struct bench_go *go)
{
    trainer_post(ctx, go);
}

/* Not a go of its own: what the library says of the newest snapshot. */
static void run_reported(void *ctx, struct bench_go *go)
{
    const struct trainer *t = ctx;
    *go = (struct bench_go){.seconds = t->reported};
}

struct scattered {
    const struct trainer *trainer;
    uint8_t *to;
};

static void run_loop_of_memcpy(void *ctx, struct bench_go *go)
{
    const struct scattered *s = ctx;
    const struct trainer *t = s->trainer;
    bench_start(go);
    for (uint32_t i = 0; i < t->count; i++) {
        memcpy(s->to + i * t->tensor_bytes, t->tensor[i], t->tensor_bytes);
    }
    bench_stop(go);
}

/* ---- G1 -------------------------------------------------------------------------------------------------------- */

static void print_stall(const struct bench *bench, const struct trainer *t, const char *id, double goal,
                        const struct bench_way *stall, const struct bench_way *best)
{
    char what[160];
    snprintf(what, sizeof(what), "%s of 512 MiB in %stensors of %zu KiB (%u KiB pages) / best plain copy", stall->name,
             t->eager ? "eager " : "", t->tensor_bytes / 1024, t->page_bytes / 1024);
    bench_print(
        &(struct bench_row){.id = id,
                            .what = what,
                            .unit = "ratio of time",
                            .value = bench_ratio(stall, best, bench->rounds),
                            .goal = goal,
                            .rounds = bench->rounds,
                            .reference = best->name,
                            .reference_value = (double)STATE_BYTES / GB / bench_seconds(best, bench->rounds).median,
                            .reference_unit = "GB/s"});
}

/* Processor time is what a machine with other work on it can still compare. */
static void print_cpu(const struct bench *bench, const struct trainer *t, const char *id, const struct bench_way *stall,
                      const struct bench_way *best)
{
    char what[160];
    struct spread ours = bench_cpu(stall, bench->rounds), plain = bench_cpu(best, bench->rounds);
    snprintf(what, sizeof(what), "the trainer's processor time of it, tensors of %zu KiB / best plain copy's",
             t->tensor_bytes / 1024);
    bench_print(&(struct bench_row){.id = id,
                                    .what = what,
                                    .unit = "ratio of CPU",
                                    .value = {ours.median / plain.median, ours.spread},
                                    .goal = NAN,
                                    .rounds = bench->rounds,
                                    .reference = best->name,
                                    .reference_value = plain.median * 1e3,
                                    .reference_unit = "CPU ms"});
}

static void stall_of(const struct bench *bench, const char *name, bool eager, size_t tensor_bytes, void *to)
{
    double goal = tensor_bytes < MIB ? 1.15 : 1.05;
    static struct bench_way ways[2 + COPY_WAYS_MAX];
    struct trainer t;
    char id[64];
    trainer_make(&t, (uint32_t)(STATE_BYTES / tensor_bytes), tensor_bytes);
    t.eager = eager;
    struct copy_job job = {.to = to, .from = t.state, .bytes = STATE_BYTES};
    trainer_attach(&t, bench, name);
    ways[0] = (struct bench_way){.name = "stall, measured outside,", .run = run_snapshot, .ctx = &t};
    ways[1] = (struct bench_way){.name = "stall, as tck_stats tells,", .run = run_reported, .ctx = &t};
    uint32_t count = 2 + copy_ways(&job, &ways[2]);
    bench_rounds(bench->rounds, ways, count);
    trainer_detach(&t, true);
    const struct bench_way *best = bench_best(&ways[2], count - 2, bench->rounds);
    snprintf(id, sizeof(id), "G1.%s", name);
    print_stall(bench, &t, id, goal, &ways[0], best);
    snprintf(id, sizeof(id), "G1.%s.reported", name);
    print_stall(bench, &t, id, goal, &ways[1], best);
    snprintf(id, sizeof(id), "G1.%s.cpu", name);
    print_cpu(bench, &t, id, &ways[0], bench_best_cpu(&ways[2], count - 2, bench->rounds));
    trainer_free(&t);
}

static void bench_stall(const struct bench *bench)
{
    void *to = buffer_shared(bench, STATE_BYTES);
    stall_of(bench, "4MiB", false, 4 * MIB, to);
    stall_of(bench, "1MiB", false, MIB, to);
    stall_of(bench, "64KiB", false, MIB / 16, to);
    stall_of(bench, "eager1MiB", true, MIB, to);
    stall_of(bench, "eager64KiB", true, MIB / 16, to);
}

/* ---- G2 -------------------------------------------------------------------------------------------------------- */

struct start {
    double seconds, cpu; /* of the first snapshot / a later one's */
    double steady_seconds, steady_cpu;
};

static struct start one_start(const struct bench *bench, struct trainer *t, uint32_t number)
{
    struct bench_go first, go;
    struct bench_way steady = {.name = "steady"};
    char job[16];
    snprintf(job, sizeof(job), "start%u", number);
    trainer_attach(t, bench, job);
    trainer_snapshot(t, &first);
    for (uint32_t i = 0; i < UNSTEADY; i++) {
        trainer_snapshot(t, &go);
    }
    for (uint32_t i = 0; i < bench->rounds; i++) {
        trainer_snapshot(t, &steady.goes[i]);
    }
    trainer_detach(t, true);
    struct start start = {.steady_seconds = bench_seconds(&steady, bench->rounds).median,
                          .steady_cpu = bench_cpu(&steady, bench->rounds).median};
    start.seconds = first.seconds / start.steady_seconds;
    start.cpu = first.cpu / start.steady_cpu;
    return start;
}

static void print_first(const char *id, double goal, const double ratios[STARTS], const double steady[STARTS])
{
    bool cpu = isnan(goal);
    bench_print(&(struct bench_row){.id = id,
                                    .what = "first snapshot after a start (512 MiB) / a later one",
                                    .unit = cpu ? "ratio of CPU" : "ratio of time",
                                    .value = bench_spread(ratios, STARTS),
                                    .goal = goal,
                                    .rounds = STARTS,
                                    .reference = "snapshot in steady state",
                                    .reference_value = bench_spread(steady, STARTS).median * 1e3,
                                    .reference_unit = cpu ? "CPU ms" : "ms"});
}

static void bench_first(const struct bench *bench)
{
    struct trainer t;
    double seconds[STARTS], cpu[STARTS], steady_seconds[STARTS], steady_cpu[STARTS];
    trainer_make(&t, (uint32_t)(STATE_BYTES / (4 * MIB)), 4 * MIB);
    for (uint32_t i = 0; i < STARTS; i++) {
        struct start start = one_start(bench, &t, i);
        seconds[i] = start.seconds;
        cpu[i] = start.cpu;
        steady_seconds[i] = start.steady_seconds;
        steady_cpu[i] = start.steady_cpu;
    }
    print_first("G2", 1.1, seconds, steady_seconds);
    print_first("G2.cpu", NAN, cpu, steady_cpu);
}

/* ---- G3 -------------------------------------------------------------------------------------------------------- */

static void post_of(const struct bench *bench, uint32_t tensors, void *to)
{
    static struct bench_way ways[2];
    struct trainer t;
    char id[64], job[32], what[160];
    trainer_make(&t, tensors, STATE_BYTES / 2 / tensors / 64 * 64);
    struct scattered s = {.trainer = &t, .to = to};
    snprintf(job, sizeof(job), "post%u", tensors);
    trainer_attach(&t, bench, job);
    ways[0] = (struct bench_way){.name = "post", .run = run_post, .ctx = &t};
    ways[1] = (struct bench_way){.name = "copying them by memcpy", .run = run_loop_of_memcpy, .ctx = &s};
    bench_rounds(bench->rounds, ways, 2);
    trainer_detach(&t, true);
    trainer_free(&t);
    struct spread seconds = bench_seconds(&ways[0], bench->rounds);
    snprintf(id, sizeof(id), "G3.%u", tensors);
    snprintf(what, sizeof(what), "overlapped mode: snapshot call of %u tensors (%zu MiB)", tensors,
             trainer_bytes(&t) / MIB);
    bench_print(&(struct bench_row){.id = id,
                                    .what = what,
                                    .unit = "us",
                                    .value = {seconds.median * 1e6, seconds.spread},
                                    .goal = 200 + 0.5 * tensors,
                                    .rounds = bench->rounds,
                                    .reference = ways[1].name,
                                    .reference_value = bench_seconds(&ways[1], bench->rounds).median * 1e6,
                                    .reference_unit = "us"});
}

static void bench_post(const struct bench *bench)
{
    void *to = buffer_shared(bench, STATE_BYTES);
    post_of(bench, 100, to);
    post_of(bench, 1000, to);
    post_of(bench, 20000, to);
}

/* ---- G10 ------------------------------------------------------------------------------------------------------- */

#define SMALL_COUNT   100000
#define SMALL_BYTES   4096
#define LARGE_BYTES   (SMALL_BYTES * 1000)
#define REGISTRATIONS 3

struct registration {
    const struct bench *bench;
    struct trainer *trainer;
    uint32_t number;
};

/* The agent allocates its memory again for each, so that both get it from the machine in the same way. */
static void run_registration(void *ctx, struct bench_go *go)
{
    struct registration *r = ctx;
    char job[32];
    snprintf(job, sizeof(job), "register%u.%u", r->trainer->count, r->number++);
    trainer_attach(r->trainer, r->bench, job);
    trainer_detach(r->trainer, true);
    *go = (struct bench_go){.seconds = r->trainer->register_time, .cpu = r->trainer->register_cpu};
}

static void print_registration(const char *id, const char *what, double goal, const struct spread spreads[2])
{
    double us = (spreads[0].median - spreads[1].median) * 1e6 / SMALL_COUNT;
    bench_print(&(struct bench_row){.id = id,
                                    .what = what,
                                    .unit = "us per tensor",
                                    .value = {us, spreads[0].spread},
                                    .goal = goal,
                                    .rounds = REGISTRATIONS,
                                    .reference = "registering 100 tensors of the same bytes",
                                    .reference_value = spreads[1].median * 1e3,
                                    .reference_unit = "ms"});
}

/* What registering costs beyond the memory that any table of this size needs. */
static void bench_registration(const struct bench *bench, struct trainer *small)
{
    static struct bench_way ways[2];
    struct trainer large;
    trainer_make(&large, SMALL_COUNT / 1000, LARGE_BYTES);
    struct registration of_small = {.bench = bench, .trainer = small};
    struct registration of_large = {.bench = bench, .trainer = &large};
    ways[0] = (struct bench_way){.run = run_registration, .ctx = &of_small};
    ways[1] = (struct bench_way){.run = run_registration, .ctx = &of_large};
    bench_rounds(REGISTRATIONS, ways, 2);
    const struct spread seconds[] = {bench_seconds(&ways[0], REGISTRATIONS), bench_seconds(&ways[1], REGISTRATIONS)};
    const struct spread cpu[] = {bench_cpu(&ways[0], REGISTRATIONS), bench_cpu(&ways[1], REGISTRATIONS)};
    print_registration("G10.register", "adding and registering 100,000 tensors, less what 100 of 1000 x the size need",
                       2, seconds);
    print_registration("G10.register.cpu", "the same in the trainer's processor time", NAN, cpu);
    trainer_free(&large);
}

static void bench_small(const struct bench *bench)
{
    static struct bench_way ways[2];
    struct trainer t;
    trainer_make(&t, SMALL_COUNT, SMALL_BYTES);
    struct scattered s = {.trainer = &t, .to = buffer_shared(bench, trainer_bytes(&t))};
    trainer_attach(&t, bench, "small");
    ways[0] = (struct bench_way){.name = "snapshot", .run = run_snapshot, .ctx = &t};
    ways[1] = (struct bench_way){.name = "loop of memcpy over the same scatter", .run = run_loop_of_memcpy, .ctx = &s};
    bench_rounds(bench->rounds, ways, 2);
    trainer_detach(&t, true);
    bench_print(&(struct bench_row){.id = "G10",
                                    .what = "snapshot of 100,000 tensors of 4 KiB / plain loop",
                                    .unit = "ratio of time",
                                    .value = bench_ratio(&ways[0], &ways[1], bench->rounds),
                                    .goal = 1.25,
                                    .rounds = bench->rounds,
                                    .reference = ways[1].name,
                                    .reference_value = bench_seconds(&ways[1], bench->rounds).median * 1e3,
                                    .reference_unit = "ms"});
    bench_registration(bench, &t);
    trainer_free(&t);
}

int main(int argc, char **argv)
{
    static const struct bench_entry entries[] = {
        {"G1", bench_stall}, {"G2", bench_first}, {"G3", bench_post}, {"G10", bench_small}};
    return bench_main(argc, argv, entries, sizeof(entries) / sizeof(*entries));
}
