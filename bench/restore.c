/* SPDX-License-Identifier: Apache-2.0
 * G7: how long a restarted trainer waits for its state, beside plain copies and reads of the same bytes. */
#include "buffer.h"
#include "raw_io.h"
#include "trainer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define STATE_BYTES (512 * MIB)
#define DRAIN_MS    60000

struct restart {
    const struct bench *bench;
    struct trainer trainer;
    bool from_storage;
};

static void restore(struct restart *r)
{
    tck_restored_t restored = {.struct_size = sizeof(restored)};
    trainer_check(&r->trainer, tck_restore(r->trainer.client, TCK_NEWEST, &restored), "restore");
    uint64_t found = r->from_storage ? restored.bytes_storage : restored.bytes_local;
    if (found < STATE_BYTES) {
        bench_die("only %" PRIu64 " bytes came from %s", found, r->from_storage ? "storage" : "memory");
    }
}

/* A trainer that comes back while its agent still has the state, or on another machine. */
static void run_restart(void *ctx, struct bench_go *go)
{
    struct restart *r = ctx;
    struct bench_go after;
    r->trainer.node += r->from_storage;
    trainer_attach(&r->trainer, r->bench, "restart");
    bench_start(go);
    restore(r);
    bench_stop(go);
    trainer_snapshot(&r->trainer, &after); /* a version that is restored again and again without a commit is given up */
    trainer_detach(&r->trainer, r->from_storage);
}

static void save(struct restart *r)
{
    struct trainer *t = &r->trainer;
    tck_save_flags_t flags = r->from_storage ? TCK_SAVE_STORAGE : TCK_SAVE_MEMORY;
    tck_stage_t stage = r->from_storage ? TCK_STAGE_DRAINED : TCK_STAGE_COMMITTED;
    trainer_make(t, (uint32_t)(STATE_BYTES / (4 * MIB)), 4 * MIB);
    trainer_attach(t, r->bench, "restart");
    trainer_check(t, tck_snapshot(t->client, ++t->step, flags), "snapshot");
    trainer_check(t, tck_fence(t->client), "fence");
    trainer_check(t, tck_wait(t->client, t->step, stage, DRAIN_MS), "save");
    trainer_detach(t, r->from_storage);
}

static void print_ratio(const struct bench *bench, const char *id, const char *what, const struct bench_way *restart,
                        const struct bench_way *limit)
{
    bench_print(
        &(struct bench_row){.id = id,
                            .what = what,
                            .unit = "ratio of GB/s",
                            .value = bench_ratio(limit, restart, bench->rounds),
                            .better = BENCH_MORE,
                            .goal = 0.95,
                            .rounds = bench->rounds,
                            .reference = limit->name,
                            .reference_value = (double)STATE_BYTES / GB / bench_seconds(limit, bench->rounds).median,
                            .reference_unit = "GB/s"});
}

static void bench_memory(const struct bench *bench)
{
    static struct bench_way ways[1 + COPY_WAYS_MAX];
    static struct restart r;
    r = (struct restart){.bench = bench};
    save(&r);
    struct copy_job job = {.to = r.trainer.state, .from = buffer_shared(bench, STATE_BYTES), .bytes = STATE_BYTES};
    ways[0] = (struct bench_way){.name = "restore", .run = run_restart, .ctx = &r};
    uint32_t count = 1 + copy_ways(&job, &ways[1]);
    bench_rounds(bench->rounds, ways, count);
    print_ratio(bench, "G7.memory", "restore of 512 MiB from the node's memory, verified / best plain copy", &ways[0],
                bench_best(&ways[1], count - 1, bench->rounds));
}

static void bench_storage(const struct bench *bench)
{
    static struct bench_way ways[2];
    static struct restart r;
    static struct raw_io raw;
    struct bench_go go;
    r = (struct restart){.bench = bench, .from_storage = true};
    save(&r);
    raw = (struct raw_io){.data = buffer_shared(bench, STATE_BYTES), .bytes = STATE_BYTES};
    snprintf(raw.path, sizeof(raw.path), "%s/raw", bench->dir);
    raw_write_keep(&raw, &go);
    ways[0] = (struct bench_way){.name = "restore", .run = run_restart, .ctx = &r};
    ways[1] = (struct bench_way){.name = "io_uring loop 4M/qd4", .run = raw_read, .ctx = &raw};
    bench_rounds(bench->rounds, ways, 2);
    print_ratio(bench, "G7.restart", "restore of 512 MiB from storage into the trainer, agent new / raw read", &ways[0],
                &ways[1]);
}

static void bench_restore(const struct bench *bench)
{
    bench_memory(bench);
    bench_storage(bench);
}

int main(int argc, char **argv)
{
    static const struct bench_entry entries[] = {{"G7", bench_restore}};
    return bench_main(argc, argv, entries, 1);
}
