/* SPDX-License-Identifier: Apache-2.0
 * The persistent tier beside the device: G5 drain, G6 its processor time, G7 load from storage. New files are compared
 * with new files, from a segment of the memory tier as the agent has it. */
#include "buffer.h"
#include "raw_io.h"

#include "tiers/memory.h"
#include "tiers/persistent.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATE_BYTES GIB
#define THREADS     2

struct storage {
    struct config config;
    struct loop *loop;
    struct pool *pool;
    struct persistent *tier;
    struct memory *memory;
    struct segment_info segment;
    struct tier_item item;
    struct manifest manifest;
    struct manifest_file file;
    struct raw_io raw;
    struct error outcome;
};

static void ended(void *ctx, const struct error *outcome)
{
    struct storage *s = ctx;
    s->outcome = *outcome;
    loop_stop(s->loop);
}

static void finish(struct storage *s, tck_status_t started, const char *what)
{
    bench_check(started, &s->outcome, what);
    loop_run(s->loop);
    bench_check(s->outcome.code, &s->outcome, what);
}

/* ---- set-up ---------------------------------------------------------------------------------------------------- */

static void make_segment(struct storage *s, const struct bench *bench)
{
    struct error err = {0};
    struct memory_setup setup = {
        .job = "bench", .cap_bytes = 2 * STATE_BYTES, .hugetlb_mount = bench->huge, .threads = THREADS};
    struct segment_wish wish = {
        .shard = (struct hash128){1, 1}, .image_bytes = STATE_BYTES, .slot_count = 1, .used = 1};
    struct segment *segment;
    bench_check(memory_new(&setup, &s->memory, &err), &err, "memory tier");
    bench_check(memory_add(s->memory, &wish, &segment, &err), &err, "segment");
    s->segment = segment_info(segment);
    s->item = (struct tier_item){.version = {1, 0},
                                 .shard = s->segment.shard,
                                 .image_bytes = STATE_BYTES,
                                 .image = segment_image(segment, 0),
                                 .crcs = segment_crcs(segment, 0)};
    buffer_fill(s->item.image, STATE_BYTES, 7);
    s->item.root = digest_image(s->item.image, STATE_BYTES, s->item.crcs);
}

static void make_manifest(struct storage *s)
{
    s->file = (struct manifest_file){.shard = s->item.shard, .bytes = STATE_BYTES, .root = s->item.root};
    s->file.crcs = bench_alloc(chunk_count(STATE_BYTES) * sizeof(*s->file.crcs));
    memcpy(s->file.crcs, s->item.crcs, chunk_count(STATE_BYTES) * sizeof(*s->file.crcs));
    manifest_file_name(s->file.shard, s->file.name);
    s->manifest = (struct manifest){.job = "bench", .world_size = 1, .wall_ms = 1, .file_count = 1, .files = &s->file};
}

static struct storage *storage_open(const struct bench *bench)
{
    struct storage *s = bench_alloc(sizeof(*s));
    struct error err = {0};
    char text[2 * CONFIG_PATH];
    snprintf(
        text, sizeof(text),
        "{\"job\":\"bench\",\"save_dir\":\"%s\",\"max_ckpt_num\":0,\"storage_verify\":\"off\",\"storage_clone\":0}",
        bench->dir);
    bench_check(config_load(NULL, text, &s->config, &err), &err, "configuration");
    bench_check(loop_new(&s->loop, &err), &err, "loop");
    bench_check(pool_new(s->loop, THREADS, &s->pool, &err), &err, "pool");
    struct persistent_setup setup = {.loop = s->loop, .pool = s->pool, .config = &s->config};
    bench_check(persistent_new(&setup, &s->tier, &err), &err, "persistent tier");
    make_segment(s, bench);
    bench_check(persistent_claim_term(s->tier, 1, &s->item.version.term, &err), &err, "term");
    make_manifest(s);
    s->raw = (struct raw_io){.data = s->item.image, .bytes = STATE_BYTES};
    snprintf(s->raw.path, sizeof(s->raw.path), "%s/raw", bench->dir);
    return s;
}

static void storage_close(struct storage *s)
{
    persistent_free(s->tier);
    pool_free(s->pool);
    loop_free(s->loop);
    memory_free(s->memory);
    free(s->file.crcs);
    free(s);
}

/* ---- what is measured ------------------------------------------------------------------------------------------ */

static void put_and_publish(struct storage *s)
{
    s->item.version.step++;
    s->manifest.version = s->item.version;
    finish(s, persistent_put(s->tier, &s->item, ended, s, &s->outcome), "put");
    const struct publish_ask ask = {.manifest = &s->manifest, .term = s->manifest.version.term};
    finish(s, persistent_publish(s->tier, &ask, ended, s, &s->outcome), "publish");
}

static void remove_published(struct storage *s)
{
    struct error err = {0};
    bench_check(persistent_prune(s->tier, 1, VERSION_NONE, false, NULL, NULL, &err), &err, "prune");
}

static void drain(void *ctx, struct bench_go *go)
{
    struct storage *s = ctx;
    bench_start(go);
    put_and_publish(s);
    bench_stop(go);
    remove_published(s);
}

/* The drain as it is by default: what was written is read back from the device before it is published. */
static void drain_verified(void *ctx, struct bench_go *go)
{
    struct storage *s = ctx;
    s->config.storage_verify = SWITCH_ON;
    drain(ctx, go);
    s->config.storage_verify = SWITCH_OFF;
}

/* The same bytes written, then read, without anything else. */
static void raw_write_and_read(void *ctx, struct bench_go *go)
{
    const struct raw_io *raw = ctx;
    struct bench_go back;
    raw_write_keep(raw, go);
    raw_read(ctx, &back);
    go->seconds += back.seconds;
    go->cpu += back.cpu;
    unlink(raw->path);
}

static void digest_and_drain(void *ctx, struct bench_go *go)
{
    struct storage *s = ctx;
    bench_start(go);
    s->item.root = digest_image(s->item.image, s->item.image_bytes, s->item.crcs);
    put_and_publish(s);
    bench_stop(go);
    remove_published(s);
}

static void load(void *ctx, struct bench_go *go)
{
    struct storage *s = ctx;
    struct published which = {.version = s->item.version};
    bench_start(go);
    finish(s, persistent_get(s->tier, &which, &s->file, &s->item, ended, s, &s->outcome), "get");
    bench_stop(go);
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

static double rate(const struct bench_way *way, uint32_t rounds)
{
    return (double)STATE_BYTES / GB / bench_seconds(way, rounds).median;
}

static void print_drain(const struct bench *bench, const struct storage *s, struct bench_way *ways, uint32_t count)
{
    const struct bench_way *limit = bench_best(ways + 1, count - 1, bench->rounds);
    char what[120];
    snprintf(what, sizeof(what), "drain of 1 GiB, published and durable / limit (%u KiB pages)",
             s->segment.page_bytes / 1024);
    bench_print(&(struct bench_row){.id = "G5",
                                    .what = what,
                                    .unit = "ratio of GB/s",
                                    .value = bench_ratio(limit, &ways[0], bench->rounds),
                                    .better = BENCH_MORE,
                                    .goal = 0.95,
                                    .rounds = bench->rounds,
                                    .reference = limit->name,
                                    .reference_value = rate(limit, bench->rounds),
                                    .reference_unit = "GB/s"});
    struct spread seconds = bench_seconds(&ways[0], bench->rounds);
    double limit_seconds = bench_seconds(limit, bench->rounds).median;
    bench_print(&(struct bench_row){.id = "G5.durable",
                                    .what = "time until the version is durable, less 1.05 x the limit's",
                                    .unit = "ms",
                                    .value = {(seconds.median - 1.05 * limit_seconds) * 1e3, seconds.spread},
                                    .goal = 20,
                                    .rounds = bench->rounds,
                                    .reference = limit->name,
                                    .reference_value = limit_seconds * 1e3,
                                    .reference_unit = "ms"});
}

static void bench_drain(const struct bench *bench)
{
    static struct bench_way ways[3];
    struct storage *s = storage_open(bench);
    uint32_t count = 2;
    ways[0] = (struct bench_way){.name = "drain", .run = drain, .ctx = s};
    ways[1] = (struct bench_way){.name = "io_uring loop 4M/qd4, new file", .run = raw_write, .ctx = &s->raw};
    if (raw_fio_is_there()) {
        ways[count++] = (struct bench_way){.name = "fio 1M/qd16, new file", .run = raw_fio, .ctx = &s->raw};
    }
    bench_rounds(bench->rounds, ways, count);
    print_drain(bench, s, ways, count);
    storage_close(s);
}

static void bench_drain_verified(const struct bench *bench)
{
    static struct bench_way ways[2];
    struct storage *s = storage_open(bench);
    ways[0] = (struct bench_way){.name = "drain, read back", .run = drain_verified, .ctx = s};
    ways[1] =
        (struct bench_way){.name = "io_uring loop 4M/qd4, new file, read", .run = raw_write_and_read, .ctx = &s->raw};
    bench_rounds(bench->rounds, ways, 2);
    bench_print(&(struct bench_row){.id = "G5.verified",
                                    .what = "drain of 1 GiB, read back, published and durable / write and read",
                                    .unit = "ratio of GB/s",
                                    .value = bench_ratio(&ways[1], &ways[0], bench->rounds),
                                    .better = BENCH_MORE,
                                    .goal = 0.95,
                                    .rounds = bench->rounds,
                                    .reference = ways[1].name,
                                    .reference_value = rate(&ways[1], bench->rounds),
                                    .reference_unit = "GB/s"});
    storage_close(s);
}

static void bench_drain_cost(const struct bench *bench)
{
    static struct bench_way ways[2];
    struct storage *s = storage_open(bench);
    ways[0] = (struct bench_way){.name = "drain, read back", .run = drain_verified, .ctx = s};
    ways[1] = (struct bench_way){.name = "drain", .run = drain, .ctx = s};
    bench_rounds(bench->rounds, ways, 2);
    bench_print(&(struct bench_row){.id = "G5.cost",
                                    .what = "time of a drain of 1 GiB with reading back / without",
                                    .unit = "ratio of seconds",
                                    .value = bench_ratio(&ways[0], &ways[1], bench->rounds),
                                    .goal = 1.3,
                                    .rounds = bench->rounds,
                                    .reference = ways[1].name,
                                    .reference_value = rate(&ways[1], bench->rounds),
                                    .reference_unit = "GB/s"});
    storage_close(s);
}

static void print_cpu(const struct bench *bench, const char *id, const char *what, double goal,
                      const struct bench_way *way, const struct bench_way *raw)
{
    double gb = (double)STATE_BYTES / GB;
    struct spread cpu = bench_cpu(way, bench->rounds);
    bench_print(&(struct bench_row){.id = id,
                                    .what = what,
                                    .unit = "CPU s/GB",
                                    .value = {cpu.median / gb, cpu.spread},
                                    .goal = goal,
                                    .rounds = bench->rounds,
                                    .reference = raw->name,
                                    .reference_value = bench_cpu(raw, bench->rounds).median / gb,
                                    .reference_unit = "CPU s/GB"});
}

static void bench_drain_cpu(const struct bench *bench)
{
    static struct bench_way ways[3];
    struct storage *s = storage_open(bench);
    ways[0] = (struct bench_way){.name = "drain", .run = drain, .ctx = s};
    ways[1] = (struct bench_way){.name = "digests and drain", .run = digest_and_drain, .ctx = s};
    ways[2] = (struct bench_way){.name = "io_uring loop 4M/qd4, new file", .run = raw_write, .ctx = &s->raw};
    bench_rounds(bench->rounds, ways, 3);
    print_cpu(bench, "G6.drain", "processor time of a drain of 1 GiB", 0.01, &ways[0], &ways[2]);
    print_cpu(bench, "G6.digest", "processor time of digests and drain of 1 GiB", 0.04, &ways[1], &ways[2]);
    storage_close(s);
}

static void bench_load(const struct bench *bench)
{
    static struct bench_way ways[2];
    struct storage *s = storage_open(bench);
    struct bench_go go;
    drain(s, &go);
    raw_write_keep(&s->raw, &go);
    ways[0] = (struct bench_way){.name = "load", .run = load, .ctx = s};
    ways[1] = (struct bench_way){.name = "io_uring loop 4M/qd4", .run = raw_read, .ctx = &s->raw};
    bench_rounds(bench->rounds, ways, 2);
    bench_print(&(struct bench_row){.id = "G7.storage",
                                    .what = "shard of 1 GiB from storage into its slot, verified / raw read",
                                    .unit = "ratio of GB/s",
                                    .value = bench_ratio(&ways[1], &ways[0], bench->rounds),
                                    .better = BENCH_MORE,
                                    .goal = 0.95,
                                    .rounds = bench->rounds,
                                    .reference = ways[1].name,
                                    .reference_value = rate(&ways[1], bench->rounds),
                                    .reference_unit = "GB/s"});
    storage_close(s);
}

int main(int argc, char **argv)
{
    static const struct bench_entry entries[] = {{"G5", bench_drain},
                                                 {"G5.verified", bench_drain_verified},
                                                 {"G5.cost", bench_drain_cost},
                                                 {"G6", bench_drain_cpu},
                                                 {"G7", bench_load}};
    return bench_main(argc, argv, entries, sizeof(entries) / sizeof(*entries));
}
