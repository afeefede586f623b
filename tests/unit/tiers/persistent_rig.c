/* SPDX-License-Identifier: Apache-2.0
 * See persistent_rig.h. */
#include "persistent_rig.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

char rig_root[256];
struct config rig_config;
struct persistent *rig_tier;
static struct loop *loop;
static struct pool *pool;

void rig_die(const char *what, const char *why)
{
    fprintf(stderr, "    %s: %s\n", what, why);
    _exit(RIG_WRONG);
}

const char *rig_path(const char *below)
{
    static char path[4][512];
    static unsigned next;
    char *out = path[next++ % 4];
    snprintf(out, sizeof(path[0]), "%s/%s", rig_root, below);
    return out;
}

/* ---- content --------------------------------------------------------------------------------------------------- */

/* One file of the version that is written under faults has more than one chunk. */
static uint64_t bytes_of(struct version version, uint32_t number)
{
    return number == 0 && version.step == RIG_BIG_STEP ? RIG_BIG_BYTES : 8192;
}

struct tier_item rig_item(struct version version, uint32_t number)
{
    struct tier_item item = {.version = version, .shard = {9, number}, .image_bytes = bytes_of(version, number)};
    item.image = aligned_alloc(4096, item.image_bytes);
    item.crcs = calloc(chunk_count(item.image_bytes), sizeof(*item.crcs));
    for (uint64_t i = 0; i < item.image_bytes; i += 8) {
        uint64_t word = i * 0x9e3779b97f4a7c15u + number + 1000 * version.step;
        memcpy(item.image + i, &word, sizeof(word));
    }
    item.root = digest_image(item.image, item.image_bytes, item.crcs);
    return item;
}

void rig_item_free(struct tier_item *item)
{
    free(item->image);
    free(item->crcs);
}

static struct manifest make_manifest(struct version version)
{
    struct manifest m = {.job = RIG_JOB, .version = version, .world_size = 1, .wall_ms = 1, .file_count = RIG_SHARDS};
    m.files = calloc(RIG_SHARDS, sizeof(*m.files));
    for (uint32_t i = 0; i < RIG_SHARDS; i++) {
        struct tier_item item = rig_item(version, i);
        m.files[i] = (struct manifest_file){
            .shard = item.shard, .bytes = item.image_bytes, .root = item.root, .crcs = item.crcs};
        manifest_file_name(item.shard, m.files[i].name);
        free(item.image);
    }
    return m;
}

/* ---- the tier -------------------------------------------------------------------------------------------------- */

tck_status_t rig_open(struct error *err)
{
    struct persistent_setup setup = {.loop = loop, .pool = pool, .config = &rig_config};
    return persistent_new(&setup, &rig_tier, err);
}

void rig_start(void)
{
    struct error err = {0};
    if (loop_new(&loop, &err) != TCK_OK || pool_new(loop, 1, &pool, &err) != TCK_OK) {
        rig_die("loop and pool", err.text);
    }
}

void rig_stop(void)
{
    persistent_free(rig_tier);
    pool_free(pool);
    loop_free(loop);
}

static void ended(void *ctx, const struct error *outcome)
{
    *(struct error *)ctx = *outcome;
    loop_stop(loop);
}

static struct error put(struct version version, uint32_t number)
{
    struct error outcome = {0};
    struct tier_item item = rig_item(version, number);
    if (persistent_put(rig_tier, &item, ended, &outcome, &outcome) == TCK_OK) {
        loop_run(loop);
    }
    rig_item_free(&item);
    return outcome;
}

static void nothing(void *ctx)
{
    (void)ctx;
}

static void turn(void *ctx, bool canceled)
{
    (void)ctx;
    (void)canceled;
    loop_stop(loop);
}

/* The work of a publish after its done callback is the next job in the pool's only thread. */
static void wait_for_tidy(void)
{
    if (pool_submit(pool, nothing, turn, NULL) == TCK_OK) {
        loop_run(loop);
    }
}

static struct error publish(struct version version)
{
    struct error outcome = {0};
    struct manifest manifest = make_manifest(version);
    const struct publish_ask ask = {.manifest = &manifest, .term = version.term};
    if (persistent_publish(rig_tier, &ask, ended, &outcome, &outcome) == TCK_OK) {
        loop_run(loop);
    }
    if (outcome.code == TCK_OK) {
        wait_for_tidy();
    }
    manifest_free(&manifest);
    return outcome;
}

struct error rig_drain(struct version version)
{
    struct error outcome = {0};
    for (uint32_t i = 0; i < RIG_SHARDS && outcome.code == TCK_OK; i++) {
        outcome = put(version, i);
    }
    return outcome.code == TCK_OK ? publish(version) : outcome;
}

struct error rig_get(const struct published *which, const struct manifest_file *file)
{
    struct error outcome = {0};
    struct tier_item want = rig_item(which->version, (uint32_t)file->shard.lo);
    struct tier_item got = rig_item(which->version, (uint32_t)file->shard.lo);
    got.root = (struct hash128){0, 0};
    memset(got.image, 0, got.image_bytes);
    if (persistent_get(rig_tier, which, file, &got, ended, &outcome, &outcome) == TCK_OK) {
        loop_run(loop);
    }
    if (outcome.code == TCK_OK && memcmp(want.image, got.image, want.image_bytes) != 0) {
        rig_die(file->name, "other bytes are loaded than were stored");
    }
    rig_item_free(&want);
    rig_item_free(&got);
    return outcome;
}

/* ---- processes and directories --------------------------------------------------------------------------------- */

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

void rig_begin(const char *name)
{
    char here[128];
    rig_config = (struct config){.job = RIG_JOB, .node = "n0", .max_ckpt_num = RIG_KEEP, .storage_verify = SWITCH_ON};
    if (getcwd(here, sizeof(here)) == NULL) {
        rig_die("getcwd", strerror(errno));
    }
    /* In memory, if possible: there are thousands of runs. */
    snprintf(rig_root, sizeof(rig_root), "%s/%s.%d", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : here, name,
             (int)getpid());
    snprintf(rig_config.save_dir, sizeof(rig_config.save_dir), "%s", rig_path("save"));
    snprintf(rig_config.audit_file_path, sizeof(rig_config.audit_file_path), "%s",
             rig_path("save/" RIG_JOB "/audit.n0.jsonl"));
}

void rig_clear(void)
{
    nftw(rig_root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* Runs fn in a child, so that its faults end there. Returns the exit status, or -1 if the child was killed. */
int rig_in_child(void (*fn)(void *ctx), void *ctx)
{
    int status = 0;
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0) {
        rig_die("fork", strerror(errno));
    }
    if (pid == 0) {
        fn(ctx);
        _exit(RIG_DONE);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
