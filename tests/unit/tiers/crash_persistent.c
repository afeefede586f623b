/* SPDX-License-Identifier: Apache-2.0
 * Two scenarios, in which the process is killed, the machine is lost or the call fails, at every single system call on
 * files.
 * Drain: a drain, a publish, the removal of an older version and a sweep. A new process then finds the newest version
 * that was reported as published, or one more, complete and bit for bit. Repair: a damaged file of a published version
 * is rewritten. All versions then exist, and the file is either as damaged as before or complete; it is complete if the
 * repair was reported. After either scenario the leftovers are removed, the job continues, and nothing outside was
 * touched.
 *
 *     crash_persistent                     about two thirds of the cases
 *     crash_persistent all
 *     crash_persistent STORY FAULT AT      one of them, as a failure names it */
#include "fault_disk.h"
#include "persistent_rig.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_STEP 10 /* published before: 10 and 20 */
#define OLD_STEP   20
#define NEW_STEP   RIG_BIG_STEP
#define TERM       1
#define NEW_DIR    "v000000000030.t1"
#define RETRIES    3

static const char *const fault_names[FAULT_COUNT] = {"none",  "kill",     "EIO",       "ENOSPC",     "EINTR",
                                                     "short", "lose all", "lose data", "lose random"};

struct story {
    const char *name;
    void (*prepare)(void);
    struct error (*act)(int report_fd);
    void (*check)(bool done); /* done: the act was reported as done */
};

/* ---- acts, which are tried again when they fail, as in an agent ------------------------------------------------ */

static struct error open_or_try_again(void)
{
    struct error err = {0};
    for (int i = 0; i < RETRIES && rig_open(&err) != TCK_OK; i++) {
        rig_tier = NULL;
    }
    return rig_tier == NULL ? err : (struct error){0};
}

static void report_done(int report_fd)
{
    if (write(report_fd, "p", 1) != 1) {
        rig_die("report", strerror(errno));
    }
}

static struct error drain_act(int report_fd)
{
    struct error err = open_or_try_again();
    struct version version = {TERM, NEW_STEP};
    if (err.code != TCK_OK) {
        return err;
    }
    (void)!persistent_note_restore(rig_tier, TERM, (struct version){TERM, OLD_STEP}, &err);
    err = (struct error){.code = TCK_ERR_INTERNAL};
    for (int i = 0; i < RETRIES && err.code != TCK_OK; i++) {
        err = rig_drain(version);
    }
    if (err.code == TCK_OK) {
        report_done(report_fd);
    }
    struct error later = {0};
    (void)!persistent_note_commit(rig_tier, TERM, &later);
    (void)!persistent_sweep(rig_tier, TERM, VERSION_NONE, &later);
    return err;
}

static const struct published repaired = {.version = {TERM, NEW_STEP}};

/* Repairs the first file of the version. It has two chunks, the second is damaged, and memory has only the second. */
static struct error repair_once(void)
{
    struct error err = {0};
    struct manifest manifest;
    struct tier_item item = rig_item(repaired.version, 0);
    memset(item.image, 0, CHUNK_BYTES);
    err.code = persistent_manifest(rig_tier, &repaired, &manifest, &err);
    if (err.code == TCK_OK) {
        err.code = persistent_repair(rig_tier, &repaired, &manifest.files[0], item.image, &err);
        manifest_free(&manifest);
    }
    rig_item_free(&item);
    return err;
}

static struct error repair_act(int report_fd)
{
    struct error err = open_or_try_again();
    for (int i = 0; i < RETRIES && rig_tier != NULL; i++) {
        err = repair_once();
        if (err.code == TCK_OK) {
            report_done(report_fd);
            break;
        }
    }
    return err;
}

/* ---- what must hold after it ----------------------------------------------------------------------------------- */

static void load_all(const struct published *which)
{
    struct error err = {0};
    struct manifest manifest;
    if (persistent_manifest(rig_tier, which, &manifest, &err) != TCK_OK) {
        rig_die("a listed version has no manifest", err.text);
    }
    if (manifest.file_count != RIG_SHARDS) {
        rig_die("a listed version", "has another number of files");
    }
    for (uint32_t i = 0; i < RIG_SHARDS; i++) {
        err = rig_get(which, &manifest.files[i]);
        if (err.code != TCK_OK) {
            rig_die("a listed version does not load", err.text);
        }
    }
    manifest_free(&manifest);
}

/* Checks that every listed version loads; returns the newest step. */
static uint64_t check_listed(uint32_t *count_out)
{
    struct error err = {0};
    struct published *versions = NULL;
    size_t count = 0;
    if (persistent_list(rig_tier, &versions, &count, &err) != TCK_OK) {
        rig_die("list", err.text);
    }
    for (size_t i = 0; i < count; i++) {
        load_all(&versions[i]);
    }
    uint64_t newest = count > 0 ? versions[0].version.step : 0;
    *count_out = (uint32_t)count;
    free(versions);
    return newest;
}

static void check_empty(const char *below)
{
    DIR *dir = opendir(rig_path(below));
    for (struct dirent *e = dir == NULL ? NULL : readdir(dir); e != NULL; e = readdir(dir)) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            rig_die(below, e->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

static void check_no_parts(const char *below)
{
    DIR *dir = opendir(rig_path(below));
    for (struct dirent *e = dir == NULL ? NULL : readdir(dir); e != NULL; e = readdir(dir)) {
        if (strstr(e->d_name, ".part") != NULL) {
            rig_die("a part file stays", e->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

/* Whether a line of the audit file reports it; every line except a torn last one must be JSON. */
static bool audited(const char *op, const char *phase, const char *what)
{
    char line[2048];
    bool found = false;
    FILE *file = fopen(rig_path("save/" RIG_JOB "/audit.n0.jsonl"), "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        json_t *json = NULL;
        if (json_parse(line, strlen(line), &json, NULL) == TCK_OK) {
            const char *a = json_str(json_get(json, "op")), *b = json_str(json_get(json, "phase"));
            const char *c = json_str(json_get(json, "what"));
            found = found || (a != NULL && b != NULL && c != NULL && strcmp(a, op) == 0 && strcmp(b, phase) == 0 &&
                              strcmp(c, what) == 0);
        }
        json_free(json);
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

static bool exists(const char *below)
{
    struct stat st;
    return lstat(rig_path(below), &st) == 0;
}

/* The fault was a full disk. A deletion makes room, so it is done even without room for the audit line that announces
 * it. */
static bool disk_was_full;

static void check_drain_audit(void)
{
    if (exists("save/" RIG_JOB "/" NEW_DIR) && !audited("publish", "intent", NEW_DIR)) {
        rig_die("audit", "a version exists and no line announces it");
    }
    if (!disk_was_full && !exists("save/" RIG_JOB "/v000000000010.t1") &&
        !audited("delete", "intent", "v000000000010.t1")) {
        rig_die("audit", "a version is gone and no line announces it");
    }
}

static void check_outside(void)
{
    char text[16] = "";
    FILE *file = fopen(rig_path("outside/file"), "re");
    if (file == NULL || fgets(text, sizeof(text), file) == NULL || strcmp(text, "untouched") != 0) {
        rig_die("outside", "a file of somebody else was changed");
    }
    fclose(file);
    DIR *dir = opendir(rig_path("save"));
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && strcmp(e->d_name, RIG_JOB) != 0) {
            rig_die("beside the job's directory", e->d_name);
        }
    }
    closedir(dir);
}

/* A later term that has restored the newest version: the leftovers are gone, and the next version is published as
 * usual. */
static void check_job_continues(uint64_t newest)
{
    struct error err = {0};
    uint64_t term = 0;
    uint32_t count;
    if (persistent_claim_term(rig_tier, 1, &term, &err) != TCK_OK || term <= TERM) {
        rig_die("claim a term", err.text);
    }
    if (persistent_sweep(rig_tier, term - 1, VERSION_NONE, &err) != TCK_OK) {
        rig_die("sweep", err.text);
    }
    check_empty("save/" RIG_JOB "/stage");
    check_empty("save/" RIG_JOB "/trash");
    check_no_parts("save/" RIG_JOB);
    check_no_parts("save/" RIG_JOB "/" NEW_DIR);
    if (check_listed(&count) != newest) {
        rig_die("sweep", "the newest version is another one after it");
    }
    if (persistent_note_restore(rig_tier, term, (struct version){TERM, newest}, &err) != TCK_OK) {
        rig_die("note the restore", err.text);
    }
    err = rig_drain((struct version){term, NEW_STEP + 10});
    if (err.code != TCK_OK) {
        rig_die("the next drain", err.text);
    }
    if (check_listed(&count) != NEW_STEP + 10 || count > RIG_KEEP) {
        rig_die("the next drain", "not the newest, or too many versions stay");
    }
}

static void check_no_invalid(void)
{
    struct error err = {0};
    struct survey survey = {0};
    if (persistent_survey_save_dir(rig_tier, &survey, &err) != TCK_OK) {
        rig_die("list", err.text);
    }
    for (size_t i = 0; i < survey.count; i++) {
        if (survey.candidates[i].standing != STANDING_GOOD) {
            rig_die("a directory with a version's name is none", survey.candidates[i].why);
        }
    }
    survey_free(&survey);
}

static void open_again(void)
{
    struct error err = {0};
    rig_start();
    if (rig_open(&err) != TCK_OK) {
        rig_die("open", err.text);
    }
}

static void drain_check(bool done)
{
    uint32_t count;
    open_again();
    uint64_t newest = check_listed(&count);
    if (newest != NEW_STEP && (done || newest != OLD_STEP)) {
        rig_die("the newest version", done ? "is not the one that was reported as published" : "is gone");
    }
    check_no_invalid();
    check_drain_audit();
    check_job_continues(newest);
    check_outside();
    rig_stop();
}

static bool is_whole(void)
{
    struct manifest manifest;
    struct error err = {0};
    if (persistent_manifest(rig_tier, &repaired, &manifest, &err) != TCK_OK) {
        rig_die("the damaged version has no manifest", err.text);
    }
    err = rig_get(&repaired, &manifest.files[0]);
    if (err.code != TCK_OK && err.code != TCK_ERR_CORRUPT) {
        rig_die("the damaged file is neither whole nor damaged", err.text);
    }
    char what[sizeof(NEW_DIR "/") + MANIFEST_FILE_NAME];
    snprintf(what, sizeof(what), NEW_DIR "/%s", manifest.files[0].name);
    if (err.code == TCK_OK && !audited("repair", "intent", what)) {
        rig_die("audit", "a file was repaired and no line announces it");
    }
    manifest_free(&manifest);
    return err.code == TCK_OK;
}

/* A file that is not repaired yet can still be repaired. */
static void repair_check(bool done)
{
    uint32_t count;
    open_again();
    check_no_invalid();
    bool whole = is_whole();
    if (done && !whole) {
        rig_die("repair", "reported as done, and the file is damaged");
    }
    struct error err = whole ? (struct error){0} : repair_once();
    if (err.code != TCK_OK) {
        rig_die("repair once more", err.text);
    }
    if (check_listed(&count) != NEW_STEP || count != RIG_KEEP) {
        rig_die("repair", "versions are gone");
    }
    check_job_continues(NEW_STEP);
    check_outside();
    rig_stop();
}

/* ---- one case -------------------------------------------------------------------------------------------------- */

static void make_dirs(void)
{
    if (mkdir(rig_root, 0755) != 0 || mkdir(rig_path("limbo"), 0755) != 0 || mkdir(rig_path("outside"), 0755) != 0) {
        rig_die(rig_root, strerror(errno));
    }
    FILE *file = fopen(rig_path("outside/file"), "we");
    if (file == NULL || fputs("untouched", file) < 0 || fclose(file) != 0) {
        rig_die("outside/file", strerror(errno));
    }
}

static void prepare_steps(uint64_t first, uint64_t last)
{
    struct error err = {0};
    uint64_t term;
    open_again();
    if (persistent_claim_term(rig_tier, TERM, &term, &err) != TCK_OK) {
        rig_die("prepare", err.text);
    }
    for (uint64_t step = first; step <= last; step += 10) {
        err = rig_drain((struct version){TERM, step});
        if (err.code != TCK_OK) {
            rig_die("prepare", err.text);
        }
    }
    rig_stop();
}

static void drain_prepare(void)
{
    prepare_steps(FIRST_STEP, OLD_STEP);
}

/* Damages the last byte of the file. Uses streams, whose calls are not counted. */
static void repair_prepare(void)
{
    char below[512], name[MANIFEST_FILE_NAME];
    prepare_steps(OLD_STEP, NEW_STEP);
    manifest_file_name((struct hash128){9, 0}, name);
    snprintf(below, sizeof(below), "save/" RIG_JOB "/" NEW_DIR "/%s", name);
    FILE *file = fopen(rig_path(below), "r+e");
    int byte = EOF;
    if (file == NULL || fseek(file, -1, SEEK_END) != 0 || (byte = fgetc(file)) == EOF ||
        fseek(file, -1, SEEK_END) != 0 || fputc(byte ^ 1, file) == EOF || fclose(file) != 0) {
        rig_die(below, strerror(errno));
    }
}

static const struct story stories[] = {{"drain", drain_prepare, drain_act, drain_check},
                                       {"repair", repair_prepare, repair_act, repair_check}};

struct one {
    const struct story *story;
    enum fault fault;
    uint32_t at;
    int report_pipe[2];
    uint32_t calls; /* in total, in a run without a fault */
    bool done;      /* the act was reported as done */
};

static void child_prepare(void *ctx)
{
    const struct one *one = ctx;
    make_dirs();
    fault_disk_begin(FAULT_NONE, 0, rig_path("limbo"));
    one->story->prepare();
}

static void child_act(void *ctx)
{
    struct one *one = ctx;
    rig_start();
    fault_disk_begin(one->fault, one->at, rig_path("limbo"));
    struct error err = one->story->act(one->report_pipe[1]);
    uint32_t calls = fault_disk_calls();
    char text[600];
    int len = snprintf(text, sizeof(text), "c%" PRIu32 " %s", calls, fault_disk_hit());
    if (write(one->report_pipe[1], text, (size_t)len) != len) {
        rig_die("report", strerror(errno));
    }
    if (err.code != TCK_OK) {
        rig_die("one failed call is not repaired by trying again", err.text);
    }
    rig_stop();
}

static void child_check(void *ctx)
{
    const struct one *one = ctx;
    fault_disk_begin(FAULT_NONE, 0, rig_path("limbo"));
    disk_was_full = one->fault == FAULT_ENOSPC;
    one->story->check(one->done);
}

/* Reads the child's report: 'p' once the act is done, then the number of calls. */
static void read_report(struct one *one, char *hit, size_t cap)
{
    char text[700];
    ssize_t len = read(one->report_pipe[0], text, sizeof(text) - 1);
    text[len > 0 ? len : 0] = '\0';
    const char *calls = strchr(text, 'c');
    hit[0] = '\0';
    if (calls != NULL) {
        one->calls = (uint32_t)strtoul(calls + 1, NULL, 10);
        const char *name = strchr(calls, ' ');
        snprintf(hit, cap, "%s", name == NULL ? "" : name + 1);
    }
    one->done = text[0] == 'p';
}

static bool run(struct one *one)
{
    char hit[64];
    rig_clear();
    if (pipe2(one->report_pipe, O_CLOEXEC) != 0) {
        rig_die("pipe", strerror(errno));
    }
    bool good = rig_in_child(child_prepare, one) == RIG_DONE && rig_in_child(child_act, one) != RIG_WRONG;
    close(one->report_pipe[1]);
    read_report(one, hit, sizeof(hit));
    close(one->report_pipe[0]);
    good = good && rig_in_child(child_check, one) == RIG_DONE;
    if (!good) {
        printf("FAILED: %s at call %" PRIu32 " %s: crash_persistent %s %d %" PRIu32 "\n", fault_names[one->fault],
               one->at, hit, one->story->name, one->fault, one->at);
    }
    return good;
}

/* Every second call is left out for faults that take nearly the same paths as others. */
static bool is_left_out(enum fault fault, uint32_t at)
{
    bool like_another =
        fault == FAULT_ENOSPC || fault == FAULT_EINTR || fault == FAULT_SHORT || fault == FAULT_LOSE_DATA;
    return like_another && (at + fault) % 2 == 0;
}

static bool run_story(const struct story *story, bool all)
{
    uint32_t cases = 0, failed = 0;
    struct one plain = {.story = story, .fault = FAULT_NONE};
    failed += !run(&plain);
    for (enum fault fault = FAULT_KILL; fault < FAULT_COUNT && failed < 10; fault++) {
        for (uint32_t at = 1; at <= plain.calls && failed < 10; at++) {
            struct one one = {.story = story, .fault = fault, .at = at};
            if (!all && is_left_out(fault, at)) {
                continue;
            }
            failed += !run(&one);
            cases++;
        }
    }
    printf("%s: %" PRIu32 " calls, %" PRIu32 " cases, %" PRIu32 " failed\n", story->name, plain.calls, cases, failed);
    return failed == 0 && plain.calls > 0;
}

int main(int argc, char **argv)
{
    bool good = argc != 4;
    rig_begin("crash-persistent");
    for (size_t i = 0; i < sizeof(stories) / sizeof(stories[0]); i++) {
        struct one one = {.story = &stories[i]};
        if (argc == 4 && strcmp(argv[1], one.story->name) == 0) {
            one.fault = (enum fault)atoi(argv[2]);
            one.at = (uint32_t)atoi(argv[3]);
            return run(&one) ? 0 : 1;
        }
        if (argc != 4) {
            good = run_story(one.story, argc == 2) && good;
        }
    }
    rig_clear();
    return good ? 0 : 1;
}
