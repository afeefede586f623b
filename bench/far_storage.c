/* SPDX-License-Identifier: Apache-2.0
 * G5.far: a drain of several files to storage where each call takes 10 ms, however few there are, as behind a network
 * or a file system in user space; compared with as many threads as there are files, each of which writes one and reads
 * it back. The storage is the tests' file system over a directory of memory (tests/storage_faults). */
#include "buffer.h"

#include "storage_faults/control.h"
#include "tiers/persistent.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES      8
#define FILE_BYTES (128 * MIB)
#define CALL_BYTES (4 * MIB)
#define DELAY_MS   10
#define THREADS    12 /* of the pool, as the agent has them for storage */

struct far {
    char backing[600], mounted[600], control_path[600];
    struct control *control;
    pid_t server;
    struct config config;
    struct loop *loop;
    struct pool *pool;
    struct persistent *tier;
    struct tier_item items[FILES];
    struct manifest_file files[FILES];
    struct manifest manifest;
    uint32_t left; /* files that are not written yet */
    struct error outcome;
};

/* ---- the file system ------------------------------------------------------------------------------------------- */

static void make_control(struct far *f)
{
    int fd = open(f->control_path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(*f->control)) != 0) {
        bench_die("%s: %s", f->control_path, strerror(errno));
    }
    f->control = mmap(NULL, sizeof(*f->control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (f->control == MAP_FAILED) {
        bench_die("%s: %s", f->control_path, strerror(errno));
    }
    *f->control = (struct control){.per_1000 = 1000, .kinds = 1u << LIE_HANG, .calls = UINT32_MAX};
}

static void wait_until_mounted(const struct far *f)
{
    struct stat above, here;
    for (int i = 0; i < 1000; i++) {
        if (stat(f->backing, &above) == 0 && stat(f->mounted, &here) == 0 && above.st_dev != here.st_dev) {
            return;
        }
        if (waitpid(f->server, NULL, WNOHANG) == f->server) {
            break;
        }
        usleep(10000);
    }
    bench_skip("the file system that delays calls cannot be mounted here (root, /dev/fuse)");
}

static void mount_far(struct far *f, const char *dir)
{
    char program[1200];
    const char *build = getenv("TIERCKPT_BUILD_DIR");
    snprintf(program, sizeof(program), "%s/tests/storage_faults/lying_fs", build != NULL ? build : ".");
    snprintf(f->backing, sizeof(f->backing), "%s/backing", dir);
    snprintf(f->mounted, sizeof(f->mounted), "%s/mounted", dir);
    snprintf(f->control_path, sizeof(f->control_path), "%s/control", dir);
    if (access(program, X_OK) != 0) {
        bench_skip("%s is not built (libfuse3, tests)", program);
    }
    if (mkdir(f->backing, 0700) != 0 || mkdir(f->mounted, 0700) != 0 ||
        mount("tmpfs", f->backing, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0700") != 0) {
        bench_skip("no tmpfs can be mounted here: %s", strerror(errno));
    }
    make_control(f);
    f->server = fork();
    if (f->server == 0) {
        execl(program, program, f->backing, f->control_path, f->mounted, (char *)NULL);
        _exit(127);
    }
    wait_until_mounted(f);
}

static void unmount_far(struct far *f)
{
    f->control->hang_ms = 0;
    umount2(f->mounted, MNT_DETACH);
    kill(f->server, SIGTERM);
    waitpid(f->server, NULL, 0);
    umount2(f->backing, MNT_DETACH);
}

/* ---- the drain ------------------------------------------------------------------------------------------------- */

static void open_tier(struct far *f)
{
    struct error err = {0};
    char text[2 * CONFIG_PATH];
    snprintf(text, sizeof(text), "{\"job\":\"bench\",\"save_dir\":\"%s\",\"max_ckpt_num\":0}", f->mounted);
    bench_check(config_load(NULL, text, &f->config, &err), &err, "configuration");
    bench_check(loop_new(&f->loop, &err), &err, "loop");
    bench_check(pool_new(f->loop, THREADS, &f->pool, &err), &err, "pool");
    const struct persistent_setup setup = {.loop = f->loop, .pool = f->pool, .config = &f->config};
    bench_check(persistent_new(&setup, &f->tier, &err), &err, "persistent tier");
    bench_check(persistent_claim_term(f->tier, 1, &f->manifest.version.term, &err), &err, "term");
}

static void make_state(struct far *f)
{
    for (uint32_t i = 0; i < FILES; i++) {
        struct tier_item *item = &f->items[i];
        *item = (struct tier_item){.shard = {1, i + 1}, .image_bytes = FILE_BYTES};
        item->image = buffer_private(FILE_BYTES);
        buffer_fill(item->image, FILE_BYTES, i);
        item->crcs = bench_alloc(chunk_count(FILE_BYTES) * sizeof(*item->crcs));
        item->root = digest_image(item->image, FILE_BYTES, item->crcs);
        f->files[i] =
            (struct manifest_file){.shard = item->shard, .bytes = FILE_BYTES, .root = item->root, .crcs = item->crcs};
        manifest_file_name(item->shard, f->files[i].name);
    }
    f->manifest =
        (struct manifest){.job = "bench", .world_size = 1, .wall_ms = 1, .file_count = FILES, .files = f->files};
}

static void ended(void *ctx, const struct error *outcome)
{
    struct far *f = ctx;
    bench_check(outcome->code, outcome, "put");
    if (--f->left == 0) {
        loop_stop(f->loop);
    }
}

/* As the agent does it (agent/drain/drain.c). */
static void drain(void *ctx, struct bench_go *go)
{
    struct far *f = ctx;
    struct error err = {0};
    f->manifest.version.step++;
    f->left = FILES;
    f->control->hang_ms = DELAY_MS;
    bench_start(go);
    for (uint32_t i = 0; i < FILES; i++) {
        f->items[i].version = f->manifest.version;
        bench_check(persistent_put(f->tier, &f->items[i], ended, f, &err), &err, "put");
    }
    loop_run(f->loop);
    bench_stop(go);
    f->control->hang_ms = 0;
    f->left = 1;
    const struct publish_ask ask = {.manifest = &f->manifest, .term = f->manifest.version.term};
    bench_check(persistent_publish(f->tier, &ask, ended, f, &err), &err, "publish");
    loop_run(f->loop);
    bench_check(persistent_prune(f->tier, 1, VERSION_NONE, false, NULL, NULL, &err), &err, "prune");
}

/* ---- what it is compared with ---------------------------------------------------------------------------------- */

struct raw_file {
    const uint8_t *data;
    char path[700];
    pthread_t thread;
};

static void *write_and_read_back(void *ctx)
{
    const struct raw_file *file = ctx;
    uint8_t *back = aligned_alloc(4096, CALL_BYTES);
    int fd = back != NULL ? open(file->path, O_RDWR | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600) : -1;
    bool ok = fd >= 0;
    for (uint64_t at = 0; at < FILE_BYTES && ok; at += CALL_BYTES) {
        ok = pwrite(fd, file->data + at, CALL_BYTES, (off_t)at) == (ssize_t)CALL_BYTES;
    }
    ok = ok && fdatasync(fd) == 0;
    for (uint64_t at = 0; at < FILE_BYTES && ok; at += CALL_BYTES) {
        ok = pread(fd, back, CALL_BYTES, (off_t)at) == (ssize_t)CALL_BYTES;
    }
    if (!ok) {
        bench_die("%s: %s", file->path, strerror(errno));
    }
    close(fd);
    free(back);
    return NULL;
}

static void raw(void *ctx, struct bench_go *go)
{
    static struct raw_file files[FILES];
    struct far *f = ctx;
    f->control->hang_ms = DELAY_MS;
    bench_start(go);
    for (uint32_t i = 0; i < FILES; i++) {
        snprintf(files[i].path, sizeof(files[i].path), "%s/raw%u", f->mounted, i);
        files[i].data = f->items[i].image;
        if (pthread_create(&files[i].thread, NULL, write_and_read_back, &files[i]) != 0) {
            bench_die("no thread");
        }
    }
    for (uint32_t i = 0; i < FILES; i++) {
        pthread_join(files[i].thread, NULL);
    }
    bench_stop(go);
    f->control->hang_ms = 0;
    for (uint32_t i = 0; i < FILES; i++) {
        unlink(files[i].path);
    }
}

static void bench_far(const struct bench *bench)
{
    static struct bench_way ways[2];
    struct far *f = bench_alloc(sizeof(*f));
    mount_far(f, bench->dir);
    make_state(f);
    open_tier(f); /* which claims the version's term */
    ways[0] = (struct bench_way){.name = "drain", .run = drain, .ctx = f};
    ways[1] = (struct bench_way){.name = "8 threads, one file each, written and read back", .run = raw, .ctx = f};
    bench_rounds(bench->rounds, ways, 2);
    bench_print(
        &(struct bench_row){.id = "G5.far",
                            .what = "drain of 8 files of 128 MiB, read back, 10 ms for each call / 8 files at once",
                            .unit = "ratio of GB/s",
                            .value = bench_ratio(&ways[1], &ways[0], bench->rounds),
                            .better = BENCH_MORE,
                            .goal = 0.9,
                            .rounds = bench->rounds,
                            .reference = ways[1].name,
                            .reference_value = FILES * FILE_BYTES / GB / bench_seconds(&ways[1], bench->rounds).median,
                            .reference_unit = "GB/s"});
    persistent_free(f->tier);
    pool_free(f->pool);
    loop_free(f->loop);
    unmount_far(f);
}

int main(int argc, char **argv)
{
    static const struct bench_entry entries[] = {{"G5.far", bench_far}};
    return bench_main(argc, argv, entries, sizeof(entries) / sizeof(*entries));
}
