/* SPDX-License-Identifier: Apache-2.0
 * G5.changed: what a drain writes of a version of which 1 % has changed since the last published one, on a file system
 * whose files can share blocks (XFS in a file), counted at the device: with the file system's own records. */
#include "buffer.h"

#include "tiers/persistent.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define STATE_BYTES  (3 * GIB)
#define CHANGED      (STATE_BYTES / 100)
#define DISK_BYTES   (16 * GIB) /* for KEPT versions and one more; only what is written takes room */
#define KEPT         3          /* as many as may be published between two drains of one way, and that one */
#define SECTOR_BYTES 512
#define THREADS      2

struct shared {
    char disk[600], mounted[600], counters[64];
    struct config config;
    struct loop *loop;
    struct pool *pool;
    struct persistent *tier;
    struct tier_item item;
    struct manifest manifest;
    struct manifest_file file;
    uint64_t number; /* of the version */
    struct error outcome;
};

/* One way to drain, with what it wrote in each round. */
struct way {
    struct shared *shared;
    uint32_t one_in; /* storage_clone */
    bool all;        /* every chunk changes */
    uint32_t rounds; /* so far, the one to warm up included */
    double written[BENCH_ROUNDS_MAX + 1];
};

/* ---- the file system ------------------------------------------------------------------------------------------- */

static void mount_disk(struct shared *s, const char *dir)
{
    char command[sizeof(s->mounted) * 6];
    struct stat st;
    snprintf(s->disk, sizeof(s->disk), "%s/disk", dir);
    snprintf(s->mounted, sizeof(s->mounted), "%s/mounted", dir);
    if (geteuid() != 0 || system("command -v mkfs.xfs >/dev/null") != 0) {
        bench_skip("needs root and mkfs.xfs (xfsprogs)");
    }
    snprintf(command, sizeof(command),
             "mkdir '%s' && truncate -s %" PRIu64 " '%s' && mkfs.xfs -q -m reflink=1 '%s' && mount -o loop '%s' '%s'",
             s->mounted, (uint64_t)DISK_BYTES, s->disk, s->disk, s->disk, s->mounted);
    if (system(command) != 0 || stat(s->mounted, &st) != 0) {
        bench_skip("an XFS in a file cannot be mounted here");
    }
    snprintf(s->counters, sizeof(s->counters), "/sys/dev/block/%u:%u/stat", major(st.st_dev), minor(st.st_dev));
}

static void unmount_disk(struct shared *s)
{
    umount2(s->mounted, MNT_DETACH);
    unlink(s->disk);
}

/* Bytes that the device was given so far. */
static uint64_t device_written(const struct shared *s)
{
    uint64_t ignored, sectors;
    int fd = open(s->mounted, O_RDONLY | O_DIRECTORY);
    bool synced = fd >= 0 && syncfs(fd) == 0; /* what the file system has not recorded yet */
    FILE *f = fopen(s->counters, "re");
    if (!synced || f == NULL ||
        fscanf(f, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &ignored,
               &ignored, &ignored, &ignored, &ignored, &ignored, &sectors) != 7) {
        bench_die("%s cannot be read", s->counters);
    }
    fclose(f);
    close(fd);
    return sectors * SECTOR_BYTES;
}

/* ---- the drain ------------------------------------------------------------------------------------------------- */

static void ended(void *ctx, const struct error *outcome)
{
    struct shared *s = ctx;
    s->outcome = *outcome;
    loop_stop(s->loop);
}

static void finish(struct shared *s, tck_status_t started, const char *what)
{
    bench_check(started, &s->outcome, what);
    loop_run(s->loop);
    bench_check(s->outcome.code, &s->outcome, what);
}

static void open_tier(struct shared *s)
{
    struct error err = {0};
    char text[2 * CONFIG_PATH];
    snprintf(text, sizeof(text), "{\"job\":\"bench\",\"save_dir\":\"%s\",\"max_ckpt_num\":0}", s->mounted);
    bench_check(config_load(NULL, text, &s->config, &err), &err, "configuration");
    bench_check(loop_new(&s->loop, &err), &err, "loop");
    bench_check(pool_new(s->loop, THREADS, &s->pool, &err), &err, "pool");
    const struct persistent_setup setup = {.loop = s->loop, .pool = s->pool, .config = &s->config};
    bench_check(persistent_new(&setup, &s->tier, &err), &err, "persistent tier");
    bench_check(persistent_claim_term(s->tier, 1, &s->item.version.term, &err), &err, "term");
}

static void make_state(struct shared *s)
{
    s->item.shard = (struct hash128){1, 1};
    s->item.image_bytes = STATE_BYTES;
    s->item.image = buffer_private(STATE_BYTES);
    s->item.crcs = bench_alloc(chunk_count(STATE_BYTES) * sizeof(*s->item.crcs));
    s->item.root = digest_image(s->item.image, STATE_BYTES, s->item.crcs);
    s->file = (struct manifest_file){.shard = s->item.shard, .bytes = STATE_BYTES, .crcs = s->item.crcs};
    manifest_file_name(s->file.shard, s->file.name);
    s->manifest = (struct manifest){.job = "bench", .world_size = 1, .wall_ms = 1, .file_count = 1, .files = &s->file};
}

/* Adapters that lie together, or a byte of each chunk. */
static void change(struct shared *s, bool all)
{
    s->number++;
    if (!all) {
        buffer_fill(s->item.image + STATE_BYTES / 2, CHANGED, s->number);
    }
    for (uint32_t i = 0; all && i < chunk_count(STATE_BYTES); i++) {
        memcpy(s->item.image + (uint64_t)i * CHUNK_BYTES, &s->number, sizeof(s->number));
    }
    s->item.root = digest_image(s->item.image, STATE_BYTES, s->item.crcs);
}

static void put_and_publish(struct shared *s)
{
    s->item.version.step++;
    s->manifest.version = s->item.version;
    s->file.root = s->item.root;
    finish(s, persistent_put(s->tier, &s->item, ended, s, &s->outcome), "put");
    const struct publish_ask ask = {.manifest = &s->manifest, .term = s->manifest.version.term};
    finish(s, persistent_publish(s->tier, &ask, ended, s, &s->outcome), "publish");
}

/* The last version of a way that shares is still there when it has its turn again, whatever the order. */
static void drain(void *ctx, struct bench_go *go)
{
    struct way *w = ctx;
    struct shared *s = w->shared;
    struct error err = {0};
    change(s, w->all);
    s->config.storage_clone = w->one_in;
    uint64_t before = device_written(s);
    bench_start(go);
    put_and_publish(s);
    bench_stop(go);
    w->written[w->rounds++] = (double)(device_written(s) - before);
    bench_check(persistent_prune(s->tier, KEPT, VERSION_NONE, false, NULL, NULL, &err), &err, "prune");
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

static void print_written(const struct bench *bench, const struct way *shares, const struct way *whole)
{
    double per_changed[BENCH_ROUNDS_MAX];
    for (uint32_t i = 0; i < bench->rounds; i++) {
        per_changed[i] = shares->written[i + 1] / (double)CHANGED;
    }
    bench_print(
        &(struct bench_row){.id = "G5.changed",
                            .what = "bytes written per byte changed, by a drain of 3 GiB of which 1 % has changed",
                            .unit = "ratio",
                            .value = bench_spread(per_changed, bench->rounds),
                            .goal = 1.1,
                            .rounds = bench->rounds,
                            .reference = "the same, written as a whole",
                            .reference_value = bench_spread(whole->written + 1, bench->rounds).median / CHANGED,
                            .reference_unit = "ratio"});
}

static void print_time(const struct bench *bench, const struct bench_way ways[2])
{
    bench_print(&(struct bench_row){.id = "G5.changed.time",
                                    .what = "drain of 3 GiB of which 1 % has changed, read back / written as a whole",
                                    .unit = "ratio of seconds",
                                    .value = bench_ratio(&ways[0], &ways[1], bench->rounds),
                                    .goal = NAN,
                                    .rounds = bench->rounds,
                                    .reference = ways[1].name,
                                    .reference_value = STATE_BYTES / GB / bench_seconds(&ways[1], bench->rounds).median,
                                    .reference_unit = "GB/s"});
}

/* The device's pauses would hide what comparing costs. */
static void print_cpu(const struct bench *bench, const struct bench_way ways[2])
{
    double gb = STATE_BYTES / GB;
    struct spread cpu = bench_cpu(&ways[0], bench->rounds);
    bench_print(&(struct bench_row){.id = "G5.all_changed.cpu",
                                    .what = "processor time of a drain of 3 GiB whose every chunk has changed",
                                    .unit = "CPU s/GB",
                                    .value = {cpu.median / gb, cpu.spread},
                                    .goal = NAN,
                                    .rounds = bench->rounds,
                                    .reference = ways[1].name,
                                    .reference_value = bench_cpu(&ways[1], bench->rounds).median / gb,
                                    .reference_unit = "CPU s/GB"});
}

static void bench_changed(const struct bench *bench)
{
    static struct bench_way ways[2], every[2];
    struct shared *s = bench_alloc(sizeof(*s));
    struct bench_go first;
    static struct way shares = {.one_in = 1000}, whole = {.one_in = 0};
    static struct way all_shares = {.one_in = 1000, .all = true}, all_whole = {.one_in = 0, .all = true};
    shares.shared = whole.shared = all_shares.shared = all_whole.shared = s;
    mount_disk(s, bench->dir);
    make_state(s);
    open_tier(s);
    drain(&shares, &first); /* the next one, to warm up, makes the hashes */
    shares.rounds = 0;
    ways[0] = (struct bench_way){.name = "1 % changed", .run = drain, .ctx = &shares};
    ways[1] = (struct bench_way){.name = "the same, written as a whole", .run = drain, .ctx = &whole};
    bench_rounds(bench->rounds, ways, 2);
    print_written(bench, &shares, &whole);
    print_time(bench, ways);
    every[0] = (struct bench_way){.name = "every chunk changed", .run = drain, .ctx = &all_shares};
    every[1] = (struct bench_way){.name = "the same, written as a whole", .run = drain, .ctx = &all_whole};
    bench_rounds(bench->rounds, every, 2);
    print_cpu(bench, every);
    persistent_free(s->tier);
    pool_free(s->pool);
    loop_free(s->loop);
    unmount_disk(s);
    buffer_free(s->item.image, STATE_BYTES);
    free(s->item.crcs);
    free(s);
}

int main(int argc, char **argv)
{
    static const struct bench_entry entries[] = {{"G5.changed", bench_changed}};
    return bench_main(argc, argv, entries, sizeof(entries) / sizeof(*entries));
}
