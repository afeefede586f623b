/* SPDX-License-Identifier: Apache-2.0
 * A drain, a publish, the removal of an older version and a sweep, with the process killed, the machine lost, or the
 * call failing, at every single system call on files. A new process then finds the newest version that was told
 * published, or one more, whole and bit for bit; cleans up what was left; goes on; and nothing outside was touched.
 *
 *     crash_persistent               about two thirds of the cases
 *     crash_persistent all
 *     crash_persistent FAULT AT      one of them, as a failure names it */
#include "fault_disk.h"

#include "tiers/persistent.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define JOB        "job"
#define SHARDS     2
#define FIRST_STEP 10 /* published before: 10 and 20 */
#define OLD_STEP   20
#define NEW_STEP   30
#define KEEP       2
#define TERM       1
#define RETRIES    3
#define BIG_BYTES  (CHUNK_BYTES + 4096u)

/* A child's exit status: what it was told before it ended, and whether something is wrong. */
enum { EXIT_DONE = 0, EXIT_WRONG = 3 };

static const char *const fault_names[FAULT_COUNT] = {"none",  "kill",     "EIO",       "ENOSPC",     "EINTR",
                                                     "short", "lose all", "lose data", "lose random"};

static char root[256];
static struct config config;
static struct loop *loop;
static struct pool *pool;
static struct persistent *tier;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "    %s: %s\n", what, why);
    _exit(EXIT_WRONG);
}

static const char *path_of(const char *below)
{
    static char path[4][512];
    static unsigned next;
    char *out = path[next++ % 4];
    snprintf(out, sizeof(path[0]), "%s/%s", root, below);
    return out;
}

/* ---- content --------------------------------------------------------------------------------------------------- */

/* One file of the version that is written under faults has more than one chunk. */
static uint64_t bytes_of(struct version version, uint32_t number)
{
    return number == 0 && version.step == NEW_STEP ? BIG_BYTES : 8192;
}

static struct tier_item make_item(struct version version, uint32_t number)
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

static void free_item(struct tier_item *item)
{
    free(item->image);
    free(item->crcs);
}

static struct manifest make_manifest(struct version version)
{
    struct manifest m = {.job = JOB, .version = version, .world_size = 1, .wall_ms = 1, .file_count = SHARDS};
    m.files = calloc(SHARDS, sizeof(*m.files));
    for (uint32_t i = 0; i < SHARDS; i++) {
        struct tier_item item = make_item(version, i);
        m.files[i] = (struct manifest_file){
            .shard = item.shard, .bytes = item.image_bytes, .root = item.root, .crcs = item.crcs};
        manifest_file_name(item.shard, m.files[i].name);
        free(item.image);
    }
    return m;
}

/* ---- the tier -------------------------------------------------------------------------------------------------- */

static tck_status_t open_tier(struct error *err)
{
    struct persistent_setup setup = {.loop = loop, .pool = pool, .config = &config};
    return persistent_new(&setup, &tier, err);
}

static void start(void)
{
    struct error err = {0};
    if (loop_new(&loop, &err) != TCK_OK || pool_new(loop, 1, &pool, &err) != TCK_OK) {
        die("loop and pool", err.text);
    }
}

static void stop(void)
{
    persistent_free(tier);
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
    struct tier_item item = make_item(version, number);
    if (persistent_put(tier, &item, ended, &outcome, &outcome) == TCK_OK) {
        loop_run(loop);
    }
    free_item(&item);
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

/* What a publish does after its done is the next job in the pool's only thread. */
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
    if (persistent_publish(tier, &manifest, ended, &outcome, &outcome) == TCK_OK) {
        loop_run(loop);
    }
    if (outcome.code == TCK_OK) {
        wait_for_tidy();
    }
    manifest_free(&manifest);
    return outcome;
}

static struct error drain(struct version version)
{
    struct error outcome = {0};
    for (uint32_t i = 0; i < SHARDS && outcome.code == TCK_OK; i++) {
        outcome = put(version, i);
    }
    return outcome.code == TCK_OK ? publish(version) : outcome;
}

/* ---- what is done under faults ----------------------------------------------------------------------------------- */

/* As an agent does: what failed is tried again, and only a publish that ended well is told. */
static struct error act(int told_fd)
{
    struct error err = {0};
    struct version version = {TERM, NEW_STEP};
    for (int i = 0; i < RETRIES && open_tier(&err) != TCK_OK; i++) {
        tier = NULL;
    }
    if (tier == NULL) {
        return err;
    }
    (void)!persistent_note_restore(tier, TERM, (struct version){TERM, OLD_STEP}, &err);
    err = (struct error){.code = TCK_ERR_INTERNAL};
    for (int i = 0; i < RETRIES && err.code != TCK_OK; i++) {
        err = drain(version);
    }
    if (err.code == TCK_OK && write(told_fd, "p", 1) != 1) {
        die("tell", strerror(errno));
    }
    struct error later = {0};
    (void)!persistent_note_commit(tier, TERM, &later);
    (void)!persistent_sweep(tier, TERM, VERSION_NONE, &later);
    return err;
}

/* ---- what must hold after it ------------------------------------------------------------------------------------- */

static void load(const struct published *which, const struct manifest_file *file)
{
    struct error outcome = {0};
    struct tier_item want = make_item(which->version, (uint32_t)file->shard.lo);
    struct tier_item got = make_item(which->version, (uint32_t)file->shard.lo);
    got.root = (struct hash128){0, 0};
    memset(got.image, 0, got.image_bytes);
    if (persistent_get(tier, which, file, &got, ended, &outcome, &outcome) == TCK_OK) {
        loop_run(loop);
    }
    if (outcome.code != TCK_OK || memcmp(want.image, got.image, want.image_bytes) != 0) {
        die("a listed version does not load bit for bit", outcome.text);
    }
    free_item(&want);
    free_item(&got);
}

static void load_all(const struct published *which)
{
    struct error err = {0};
    struct manifest manifest;
    if (persistent_manifest(tier, which, &manifest, &err) != TCK_OK) {
        die("a listed version has no manifest", err.text);
    }
    if (manifest.file_count != SHARDS) {
        die("a listed version", "has another number of files");
    }
    for (uint32_t i = 0; i < SHARDS; i++) {
        load(which, &manifest.files[i]);
    }
    manifest_free(&manifest);
}

/* All that is listed loads; returns the newest step. */
static uint64_t check_listed(uint32_t *count_out)
{
    struct error err = {0};
    struct published *versions = NULL;
    size_t count = 0;
    if (persistent_list(tier, &versions, &count, &err) != TCK_OK) {
        die("list", err.text);
    }
    for (size_t i = 0; i < count; i++) {
        load_all(&versions[i]);
    }
    uint64_t newest = count > 0 ? versions[0].version.step : 0;
    *count_out = (uint32_t)count;
    free(versions);
    return newest;
}

static void found_invalid(void *ctx, const char *why)
{
    (void)ctx;
    die("a directory with a version's name is none", why);
}

static void check_empty(const char *below)
{
    DIR *dir = opendir(path_of(below));
    for (struct dirent *e = dir == NULL ? NULL : readdir(dir); e != NULL; e = readdir(dir)) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            die(below, e->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

static void check_no_parts(const char *below)
{
    DIR *dir = opendir(path_of(below));
    for (struct dirent *e = dir == NULL ? NULL : readdir(dir); e != NULL; e = readdir(dir)) {
        if (strstr(e->d_name, ".part") != NULL) {
            die("a part file stays", e->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

/* Whether a line of the audit file says so; every line but a torn last one must be JSON. */
static bool audited(const char *op, const char *phase, const char *what)
{
    char line[2048];
    bool found = false;
    FILE *file = fopen(path_of("save/" JOB "/audit.n0.jsonl"), "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        json_t *json = NULL;
        if (json_parse(line, strlen(line), &json, NULL) == TCK_OK) {
            const char *a = json_str(json_get(json, "op")), *b = json_str(json_get(json, "phase"));
            const char *c = json_str(json_get(json, "what"));
            found = found || (a && b && c && strcmp(a, op) == 0 && strcmp(b, phase) == 0 && strcmp(c, what) == 0);
        }
        json_free(json);
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

static bool is_there(const char *below)
{
    struct stat st;
    return lstat(path_of(below), &st) == 0;
}

static void check_audit(void)
{
    if (is_there("save/" JOB "/v000000000030.t1") && !audited("publish", "intent", "v000000000030.t1")) {
        die("audit", "a version stands there and no line announces it");
    }
    if (!is_there("save/" JOB "/v000000000010.t1") && !audited("delete", "intent", "v000000000010.t1")) {
        die("audit", "a version is gone and no line announces it");
    }
}

static void check_outside(void)
{
    char text[16] = "";
    FILE *file = fopen(path_of("outside/file"), "re");
    if (file == NULL || fgets(text, sizeof(text), file) == NULL || strcmp(text, "untouched") != 0) {
        die("outside", "a file of somebody else was changed");
    }
    fclose(file);
    DIR *dir = opendir(path_of("save"));
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && strcmp(e->d_name, JOB) != 0) {
            die("beside the job's directory", e->d_name);
        }
    }
    closedir(dir);
}

/* A term later: what was left is gone, and the next version is published as ever. */
static void check_life_goes_on(uint64_t newest)
{
    struct error err = {0};
    uint64_t term = 0;
    uint32_t count;
    if (persistent_claim_term(tier, 1, &term, &err) != TCK_OK || term <= TERM) {
        die("claim a term", err.text);
    }
    if (persistent_sweep(tier, term - 1, VERSION_NONE, &err) != TCK_OK) {
        die("sweep", err.text);
    }
    check_empty("save/" JOB "/stage");
    check_empty("save/" JOB "/trash");
    check_no_parts("save/" JOB);
    if (check_listed(&count) != newest) {
        die("sweep", "the newest version is another one after it");
    }
    err = drain((struct version){term, NEW_STEP + 10});
    if (err.code != TCK_OK) {
        die("the next drain", err.text);
    }
    if (check_listed(&count) != NEW_STEP + 10 || count > KEEP) {
        die("the next drain", "not the newest, or too many versions stay");
    }
}

/* done: the publish was told as done. */
static void check(bool done)
{
    struct error err = {0};
    uint32_t count;
    start();
    if (open_tier(&err) != TCK_OK) {
        die("open", err.text);
    }
    uint64_t newest = check_listed(&count);
    if (newest != NEW_STEP && (done || newest != OLD_STEP)) {
        die("the newest version", done ? "is not the one that was told published" : "is gone");
    }
    if (persistent_list_invalid(tier, found_invalid, NULL, &err) != TCK_OK) {
        die("list", err.text);
    }
    check_audit();
    check_life_goes_on(newest);
    check_outside();
    stop();
}

/* ---- one case ------------------------------------------------------------------------------------------------------
 */

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static void make_dirs(void)
{
    if (mkdir(root, 0755) != 0 || mkdir(path_of("limbo"), 0755) != 0 || mkdir(path_of("outside"), 0755) != 0) {
        die(root, strerror(errno));
    }
    FILE *file = fopen(path_of("outside/file"), "we");
    if (file == NULL || fputs("untouched", file) < 0 || fclose(file) != 0) {
        die("outside/file", strerror(errno));
    }
}

/* Two versions stand there already. */
static void prepare(void)
{
    struct error err = {0};
    uint64_t term;
    start();
    if (open_tier(&err) != TCK_OK || persistent_claim_term(tier, TERM, &term, &err) != TCK_OK) {
        die("prepare", err.text);
    }
    for (uint64_t step = FIRST_STEP; step <= OLD_STEP; step += 10) {
        err = drain((struct version){TERM, step});
        if (err.code != TCK_OK) {
            die("prepare", err.text);
        }
    }
    stop();
}

/* In a child: fn's faults end there. Returns its exit status, or -1 if it was killed. */
static int in_child(void (*fn)(void *ctx), void *ctx)
{
    int status = 0;
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0) {
        die("fork", strerror(errno));
    }
    if (pid == 0) {
        fn(ctx);
        _exit(EXIT_DONE);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct one {
    enum fault fault;
    uint32_t at;
    int told[2];
    uint32_t calls; /* in all, of a run without a fault */
};

static void child_prepare(void *ctx)
{
    (void)ctx;
    make_dirs();
    fault_disk_begin(FAULT_NONE, 0, path_of("limbo"));
    prepare();
}

static void child_act(void *ctx)
{
    struct one *one = ctx;
    start();
    fault_disk_begin(one->fault, one->at, path_of("limbo"));
    struct error err = act(one->told[1]);
    uint32_t calls = fault_disk_calls();
    char text[600];
    int len = snprintf(text, sizeof(text), "c%" PRIu32 " %s", calls, fault_disk_hit());
    if (write(one->told[1], text, (size_t)len) != len) {
        die("tell", strerror(errno));
    }
    if (err.code != TCK_OK) {
        die("one failed call is not mended by trying again", err.text);
    }
    stop();
}

static void child_check(void *ctx)
{
    fault_disk_begin(FAULT_NONE, 0, path_of("limbo"));
    check(*(bool *)ctx);
}

/* What the child had to say: 'p' once it was told that the version is published, then the count of calls. */
static bool hear(struct one *one, char *hit, size_t cap)
{
    char text[700];
    ssize_t len = read(one->told[0], text, sizeof(text) - 1);
    text[len > 0 ? len : 0] = '\0';
    const char *calls = strchr(text, 'c');
    hit[0] = '\0';
    if (calls != NULL) {
        one->calls = (uint32_t)strtoul(calls + 1, NULL, 10);
        const char *name = strchr(calls, ' ');
        snprintf(hit, cap, "%s", name == NULL ? "" : name + 1);
    }
    return text[0] == 'p';
}

static bool run(struct one *one)
{
    char hit[64];
    nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    if (pipe2(one->told, O_CLOEXEC) != 0) {
        die("pipe", strerror(errno));
    }
    bool good = in_child(child_prepare, NULL) == EXIT_DONE && in_child(child_act, one) != EXIT_WRONG;
    close(one->told[1]);
    bool done = hear(one, hit, sizeof(hit));
    close(one->told[0]);
    good = good && in_child(child_check, &done) == EXIT_DONE;
    if (!good) {
        printf("FAILED: %s at call %" PRIu32 " %s: crash_persistent %d %" PRIu32 "\n", fault_names[one->fault], one->at,
               hit, one->fault, one->at);
    }
    return good;
}

/* Of the faults that go much the same ways as others, every second call. */
static bool is_left_out(enum fault fault, uint32_t at)
{
    bool like_another =
        fault == FAULT_ENOSPC || fault == FAULT_EINTR || fault == FAULT_SHORT || fault == FAULT_LOSE_DATA;
    return like_another && (at + fault) % 2 == 0;
}

int main(int argc, char **argv)
{
    char here[128];
    uint32_t cases = 0, failed = 0;
    struct one plain = {.fault = FAULT_NONE};
    if (getcwd(here, sizeof(here)) == NULL) {
        return 1;
    }
    /* Memory, if it can be had: there are thousands of runs. */
    snprintf(root, sizeof(root), "%s/crash-persistent.%d", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : here,
             (int)getpid());
    config = (struct config){.job = JOB, .node = "n0", .max_ckpt_num = KEEP, .storage_verify = SWITCH_ON};
    snprintf(config.save_dir, sizeof(config.save_dir), "%s", path_of("save"));
    snprintf(config.audit_file_path, sizeof(config.audit_file_path), "%s", path_of("save/" JOB "/audit.n0.jsonl"));
    if (argc == 3) {
        struct one one = {.fault = (enum fault)atoi(argv[1]), .at = (uint32_t)atoi(argv[2])};
        return run(&one) ? 0 : 1;
    }
    failed += !run(&plain);
    for (enum fault fault = FAULT_KILL; fault < FAULT_COUNT && failed < 10; fault++) {
        for (uint32_t at = 1; at <= plain.calls && failed < 10; at++) {
            struct one one = {.fault = fault, .at = at};
            if (argc == 1 && is_left_out(fault, at)) {
                continue;
            }
            failed += !run(&one);
            cases++;
        }
    }
    nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    printf("%" PRIu32 " calls, %" PRIu32 " cases, %" PRIu32 " failed\n", plain.calls, cases, failed);
    return failed == 0 && plain.calls > 0 ? 0 : 1;
}
