/* SPDX-License-Identifier: Apache-2.0
 * Every file of the save directory damaged in every way: bytes flipped, cut, zeroed, lengthened, gone, swapped, or
 * replaced by something else. Each time the newest version that loads is the damaged one, bit for bit, or the one
 * before it; or there is one error that names the file. Nothing hangs, no wrong bytes are loaded, and the damaged
 * version itself stays as it is.
 *
 *     damage_persistent [TARGET DAMAGE]     one case, by its names; without: all */
#include "persistent_rig.h"

#include "tiers/names.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OLD_STEP 20
#define TERM     1
#define TIME_S   60 /* a case that takes longer hangs */
#define HUGE     ((off_t)1 << 40)
#define JOB_DIR  "save/" RIG_JOB "/"
#define NEW_DIR  JOB_DIR "v000000000030.t1"
#define OLD_DIR  JOB_DIR "v000000000020.t1"
#define SHARD_0  "shard-00000000000000090000000000000000.safetensors"
#define SHARD_1  "shard-00000000000000090000000000000001.safetensors"
#define TOO_MANY 20

/* What may be restored after the damage. */
enum may {
    MAY_OLD = 1,    /* the version before */
    MAY_NEW = 2,    /* the newest one */
    MAY_REFUSE = 4, /* nothing is opened; the error names the file */
};

static const struct target {
    const char *path, *name; /* name: must be in the error */
    int may;
    bool every_byte; /* flips of all its bytes */
} targets[] = {
    {NEW_DIR "/manifest.json", "manifest", MAY_OLD, true},
    {NEW_DIR "/" SHARD_0, SHARD_0, MAY_OLD, false},
    {NEW_DIR "/" SHARD_1, SHARD_1, MAY_OLD, true},
    {NEW_DIR, "v000000000030.t1", MAY_OLD, false},
    {OLD_DIR "/manifest.json", "manifest", MAY_NEW, false},
    {JOB_DIR ".tierckpt", ".tierckpt", MAY_REFUSE | MAY_NEW, true},
    {JOB_DIR "term.1", "term.1", MAY_NEW, true},
    {JOB_DIR "LATEST", "LATEST", MAY_NEW, true},
    {JOB_DIR "audit.n0.jsonl", "audit", MAY_NEW | MAY_REFUSE, false},
    {JOB_DIR "stage", "stage", MAY_NEW, false},
    {JOB_DIR "trash", "trash", MAY_NEW, false},
};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- damage ---------------------------------------------------------------------------------------------------- */

static void must(bool ok, const char *what)
{
    if (!ok) {
        rig_die(what, strerror(errno));
    }
}

static off_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_size : -1;
}

static void overwrite(const char *path, off_t at, const void *bytes, size_t len)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    must(fd >= 0 && pwrite(fd, bytes, len, at) == (ssize_t)len, path);
    close(fd);
}

static bool resize(const char *path, off_t size)
{
    must(truncate(path, size) == 0, path);
    return true;
}

static bool is_dir(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool do_empty(const char *path)
{
    return !is_dir(path) && size_of(path) > 0 && resize(path, 0);
}

static bool do_cut_half(const char *path)
{
    return !is_dir(path) && size_of(path) > 1 && resize(path, size_of(path) / 2);
}

static bool do_cut_last(const char *path)
{
    return !is_dir(path) && size_of(path) > 0 && resize(path, size_of(path) - 1);
}

static bool do_cut_page(const char *path)
{
    return !is_dir(path) && size_of(path) > 4096 && resize(path, size_of(path) - 4096);
}

static bool do_zero(const char *path)
{
    off_t size = size_of(path);
    return !is_dir(path) && size > 0 && resize(path, 0) && resize(path, size);
}

static bool do_longer(const char *path)
{
    return !is_dir(path) && resize(path, size_of(path) + 1);
}

static bool do_page_longer(const char *path)
{
    return !is_dir(path) && resize(path, size_of(path) + 4096);
}

static bool do_huge(const char *path)
{
    return !is_dir(path) && truncate(path, HUGE) == 0; /* not every file system has room for its map */
}

static bool do_gone(const char *path)
{
    must(rename(path, rig_path("aside")) == 0, path);
    return true;
}

static bool do_link(const char *path)
{
    return do_gone(path) && symlink(rig_path("aside"), path) == 0;
}

static bool do_dangling(const char *path)
{
    return do_gone(path) && symlink("nowhere", path) == 0;
}

static bool do_loop(const char *path)
{
    return do_gone(path) && symlink(path, path) == 0;
}

static bool do_fifo(const char *path)
{
    return do_gone(path) && mkfifo(path, 0644) == 0;
}

static bool do_dir(const char *path)
{
    return !is_dir(path) && do_gone(path) && mkdir(path, 0755) == 0;
}

static bool do_file(const char *path)
{
    if (!is_dir(path) || !do_gone(path)) {
        return false;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    must(fd >= 0, path);
    close(fd);
    return true;
}

static bool do_noise(const char *path)
{
    off_t size = is_dir(path) ? 0 : size_of(path);
    if (size <= 0) {
        return false;
    }
    uint8_t *noise = malloc((size_t)size);
    uint32_t state = 12345;
    must(noise != NULL, path);
    for (off_t at = 0; at < size; at++) {
        state = state * 1664525u + 1013904223u;
        noise[at] = (uint8_t)(state >> 24);
    }
    overwrite(path, 0, noise, (size_t)size);
    free(noise);
    return true;
}

/* Replaces it by the same file of the version before. */
static bool do_older(const char *path)
{
    char from[600], command[1300];
    const char *base = strrchr(path, '/') + 1;
    size_t dir_len = strlen(rig_path(NEW_DIR "/"));
    if (strncmp(path, rig_path(NEW_DIR "/"), dir_len) != 0) {
        return false;
    }
    snprintf(from, sizeof(from), "%s/%s", rig_path(OLD_DIR), base);
    snprintf(command, sizeof(command), "cp '%s' '%s'", from, path);
    must(system(command) == 0, command); /* NOLINT(cert-env33-c): a name that this program chose */
    return true;
}

/* Exchanges the two files of a version. */
static bool do_other(const char *path)
{
    char other[600];
    const char *base = strrchr(path, '/') + 1;
    if (strcmp(base, SHARD_0) != 0) {
        return false;
    }
    snprintf(other, sizeof(other), "%.*s%s", (int)(base - path), path, SHARD_1);
    must(rename(path, rig_path("aside")) == 0 && rename(other, path) == 0 && rename(rig_path("aside"), other) == 0,
         path);
    return true;
}

static bool do_forbidden(const char *path)
{
    return geteuid() != 0 && chmod(path, 0) == 0; /* root may read it anyway */
}

static const struct damage {
    const char *name;
    bool (*fn)(const char *path); /* false: it cannot be done to this file */
} damages[] = {
    {"empty", do_empty},
    {"cut_half", do_cut_half},
    {"cut_last", do_cut_last},
    {"cut_page", do_cut_page},
    {"zero", do_zero},
    {"longer", do_longer},
    {"page_longer", do_page_longer},
    {"huge", do_huge},
    {"gone", do_gone},
    {"link", do_link},
    {"dangling", do_dangling},
    {"loop", do_loop},
    {"fifo", do_fifo},
    {"dir", do_dir},
    {"file", do_file},
    {"noise", do_noise},
    {"older", do_older},
    {"other", do_other},
    {"forbidden", do_forbidden},
};

/* ---- what is restored ------------------------------------------------------------------------------------------ */

/* All of its files, as a recovery would. */
static struct error restore(const struct published *which)
{
    struct error err = {0};
    struct manifest manifest;
    if (persistent_manifest(rig_tier, which, &manifest, &err) != TCK_OK) {
        return err;
    }
    for (uint32_t i = 0; i < manifest.file_count && err.code == TCK_OK; i++) {
        err = rig_get(which, &manifest.files[i]);
    }
    manifest_free(&manifest);
    return err;
}

/* The step of the newest version that restores, 0 if none; why_out: the error of a newer one. */
static uint64_t newest_good(struct error *why_out)
{
    struct published *versions = NULL;
    size_t count = 0;
    uint64_t step = 0;
    struct error err = {0};
    if (persistent_list(rig_tier, &versions, &count, &err) != TCK_OK) {
        rig_die("list", err.text);
    }
    for (size_t i = 0; i < count && step == 0; i++) {
        struct error why = restore(&versions[i]);
        if (why.code == TCK_OK) {
            step = versions[i].version.step;
        } else {
            *why_out = why;
        }
    }
    free(versions);
    return step;
}

/* As the command does: returns the error of the newest version. */
static struct error verify(void)
{
    struct error err = {0};
    struct published newest = {.version = {TERM, RIG_BIG_STEP}};
    struct survey survey = {0};
    tck_status_t status = persistent_survey_save_dir(rig_tier, &survey, &(struct error){0});
    for (size_t i = 0; i < survey.count && err.code == TCK_OK; i++) {
        if (survey.candidates[i].standing != STANDING_GOOD) {
            char name[DIR_NAME_MAX];
            version_dir_name(survey.candidates[i].which.version, name);
            error_set(&err, TCK_ERR_CORRUPT, "%s: %s", name, survey.candidates[i].why);
        }
    }
    survey_free(&survey);
    if (status == TCK_OK && err.code == TCK_OK) {
        (void)!persistent_verify(rig_tier, &newest, &err);
    }
    return err;
}

static void check_step(const struct target *target, uint64_t step, const struct error *why)
{
    bool good = (step == RIG_BIG_STEP && (target->may & MAY_NEW)) || (step == OLD_STEP && (target->may & MAY_OLD));
    if (!good) {
        char text[700];
        snprintf(text, sizeof(text), "restores step %" PRIu64 ": %s", step, why->text);
        rig_die(target->path, text);
    }
}

static void check_named(const struct target *target, const struct error *err)
{
    if (strstr(err->text, target->name) == NULL) {
        rig_die(target->path, err->text[0] ? err->text : "is damaged, and no error reports it");
    }
}

/* Only reads. Returns false if the directory could not be opened at all. */
static bool check_reading(const struct target *target)
{
    struct error err = {0}, why = {0};
    struct version tried;
    uint32_t tries;
    uint64_t term;
    if (rig_open(&err) != TCK_OK) {
        rig_tier = NULL;
        if (!(target->may & MAY_REFUSE)) {
            rig_die("refused", err.text);
        }
        check_named(target, &err);
        return false;
    }
    check_step(target, newest_good(&why), &why);
    struct stat st;
    if (target->may == MAY_OLD && lstat(rig_path(NEW_DIR), &st) == 0) {
        struct error found = verify();
        check_named(target, &found);
    }
    if (persistent_newest_term(rig_tier, &term, &err) != TCK_OK ||
        persistent_restore_tries(rig_tier, TERM + 1, &tried, &tries, &err) != TCK_OK) {
        rig_die("terms", err.text);
    }
    return true;
}

/* The job continues with a new term, a sweep and the next versions, and the damage can still be examined. */
static void check_job_continues(const struct target *target)
{
    struct error err = {0};
    uint64_t term = 0;
    struct stat st;
    bool was_there = lstat(rig_path(NEW_DIR), &st) == 0;
    if (persistent_claim_term(rig_tier, 1, &term, &err) != TCK_OK || (term <= TERM)) {
        rig_die("claim a term", err.text);
    }
    bool no_stage = strcmp(target->name, "stage") == 0;
    if (persistent_sweep(rig_tier, term - 1, VERSION_NONE, &err) != TCK_OK && !no_stage) {
        rig_die("sweep", err.text);
    }
    (void)!persistent_note_restore(rig_tier, term, (struct version){TERM, OLD_STEP}, &err);
    struct version version = {term, RIG_BIG_STEP + 10};
    err = rig_drain(version);
    if (err.code != TCK_OK) {
        if (!no_stage) {
            rig_die("the next drain", err.text);
        }
        check_named(target, &err);
        return;
    }
    if (newest_good(&err) != version.step) {
        rig_die("the next drain", err.text);
    }
    if (target->may == MAY_OLD && was_there && lstat(rig_path(NEW_DIR), &st) != 0 &&
        strcmp(target->path, NEW_DIR) != 0 && strstr(target->path, "shard") == NULL) {
        rig_die(target->path, "the damaged version was deleted");
    }
}

/* ---- cases ----------------------------------------------------------------------------------------------------- */

struct one {
    const struct target *target;
    const struct damage *damage; /* NULL: flips */
    bool done;
};

static void make_versions(void *ctx)
{
    struct error err = {0};
    uint64_t term;
    (void)ctx;
    must(mkdir(rig_root, 0755) == 0, rig_root);
    rig_start();
    if (rig_open(&err) != TCK_OK || persistent_claim_term(rig_tier, TERM, &term, &err) != TCK_OK ||
        persistent_note_restore(rig_tier, TERM, (struct version){TERM, OLD_STEP}, &err) != TCK_OK) {
        rig_die("prepare", err.text);
    }
    for (uint64_t step = OLD_STEP; step <= RIG_BIG_STEP; step += 10) {
        err = rig_drain((struct version){TERM, step});
        if (err.code != TCK_OK) {
            rig_die("prepare", err.text);
        }
    }
    must(mkdir(rig_path(JOB_DIR "trash"), 0755) == 0 || errno == EEXIST, "trash");
    rig_stop();
}

static void damage_once(void *ctx)
{
    struct one *one = ctx;
    char path[600];
    alarm(TIME_S);
    snprintf(path, sizeof(path), "%s", rig_path(one->target->path));
    if (!one->damage->fn(path)) {
        _exit(RIG_DONE);
    }
    rig_start();
    if (check_reading(one->target)) {
        check_job_continues(one->target);
    }
    rig_stop();
}

/* Flips one bit after the other at these places, reads, and repairs it again. */
static void flip_all(void *ctx)
{
    const struct one *one = ctx;
    char path[600];
    snprintf(path, sizeof(path), "%s", rig_path(one->target->path));
    off_t size = size_of(path);
    off_t stride = one->target->every_byte ? (size > 4096 ? 61 : 1) : size / 97 + 1;
    rig_start();
    for (off_t at = 0; at < size; at = at + stride < size || at == size - 1 ? at + stride : size - 1) {
        uint8_t byte, bad;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        must(fd >= 0 && pread(fd, &byte, 1, at) == 1, path);
        close(fd);
        bad = byte ^ (uint8_t)(1u << (at % 8));
        alarm(TIME_S);
        overwrite(path, at, &bad, 1);
        (void)check_reading(one->target);
        persistent_free(rig_tier);
        rig_tier = NULL;
        overwrite(path, at, &byte, 1);
    }
    struct error err = {0};
    if (rig_open(&err) != TCK_OK || newest_good(&err) != RIG_BIG_STEP) {
        rig_die("all repaired again", err.text);
    }
    rig_stop();
}

static bool run(struct one *one)
{
    const char *damage = one->damage == NULL ? "flip" : one->damage->name;
    rig_clear();
    bool good = rig_in_child(make_versions, NULL) == RIG_DONE &&
                rig_in_child(one->damage == NULL ? flip_all : damage_once, one) == RIG_DONE;
    if (!good) {
        printf("FAILED: damage_persistent %s %s\n", one->target->path, damage);
    }
    return good;
}

static bool is_wanted(int argc, char **argv, const struct target *target, const char *damage)
{
    return argc != 3 || (strcmp(argv[1], target->path) == 0 && strcmp(argv[2], damage) == 0);
}

int main(int argc, char **argv)
{
    uint32_t cases = 0, failed = 0;
    rig_begin("damage-persistent");
    for (size_t t = 0; t < COUNT_OF(targets) && failed < TOO_MANY; t++) {
        struct one one = {.target = &targets[t]};
        bool directory = strchr(strrchr(targets[t].path, '/'), '.') == NULL || strcmp(targets[t].path, NEW_DIR) == 0;
        if (!(directory && strcmp(targets[t].name, "LATEST") != 0) && is_wanted(argc, argv, &targets[t], "flip")) {
            failed += !run(&one);
            cases++;
        }
        for (size_t d = 0; d < COUNT_OF(damages); d++) {
            one.damage = &damages[d];
            if (is_wanted(argc, argv, &targets[t], damages[d].name)) {
                failed += !run(&one);
                cases++;
            }
        }
    }
    rig_clear();
    printf("%" PRIu32 " cases, %" PRIu32 " failed\n", cases, failed);
    return failed == 0 && cases > 0 ? 0 : 1;
}
