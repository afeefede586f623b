/* SPDX-License-Identifier: Apache-2.0
 * A directory with a version's name is only a candidate: its manifest and the sizes of its files decide. One that is
 * damaged is passed over; one that cannot be read is an error if it stays so, for it may be the newest. */
#include "published/find_version.h"
#include "base/bounded.h"
#include "base/path.h"
#include "base/progress.h"
#include "tiers/forgotten.h"
#include "tiers/names.h"
#include "tiers/safe_fs.h"
#include "tiers/version_files.h"
#include "tiers/version_standing.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOKS_MAX      6         /* at storage, while something there cannot be read */
#define FIRST_PAUSE_NS 100000000 /* before the second one; doubled each time: about three seconds in all */
#define PAUSE_STEP_NS  50000000

void found_free(struct found *found)
{
    if (found->dir_fd >= 0) {
        close(found->dir_fd);
    }
    free(found->path);
    manifest_free(&found->manifest);
    *found = (struct found){.dir_fd = -1};
}

/* ---- one directory ----------------------------------------------------------------------------------------------- */

static tck_status_t read_manifest(struct found *found, struct error *err)
{
    char *text = NULL;
    size_t len = 0;
    tck_status_t status = safe_fs_read(found->dir_fd, MANIFEST_NAME, JSON_MAX_BYTES, &text, &len, err);
    if (status != TCK_OK) {
        return status;
    }
    status = manifest_parse(text, len, &found->manifest, err);
    free(text);
    return status == TCK_OK ? version_check_files(found->dir_fd, &found->manifest, err) : status;
}

/* Takes dir_fd over. */
static tck_status_t open_version(int dir_fd, const char *path, struct found *out, struct error *err)
{
    struct found found = {.dir_fd = dir_fd, .path = strdup(path)};
    tck_status_t status =
        found.path == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory for a path") : read_manifest(&found, err);
    if (status != TCK_OK) {
        found_free(&found);
        return error_prefix(err, "%.200s", path);
    }
    *out = found;
    return TCK_OK;
}

static tck_status_t find_there(const char *path, struct found *out, struct error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return error_set(err, status_of_errno(errno), "open directory %.200s: %m", path);
    }
    return open_version(fd, path, out, err);
}

/* ---- candidates -------------------------------------------------------------------------------------------------- */

struct candidate {
    struct version version;
    const char *below; /* save_dir or load_dir */
};

struct candidates {
    size_t count;
    struct candidate *list;
};

static tck_status_t add(struct candidates *candidates, struct candidate candidate, struct error *err)
{
    struct candidate *list = reallocarray(candidates->list, candidates->count + 1, sizeof(*list));
    if (list == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the list of versions");
    }
    list[candidates->count++] = candidate;
    candidates->list = list;
    return TCK_OK;
}

static void job_dir(const struct config *config, const char *below, char out[CONFIG_PATH + CONFIG_NAME + 1])
{
    snprintf(out, CONFIG_PATH + CONFIG_NAME + 1, "%s/%s", below, config->job);
}

static bool is_wanted(struct version version, struct version wanted)
{
    bool step = wanted.step == TCK_NEWEST || version.step == wanted.step;
    return step && (wanted.term == 0 || version.term == wanted.term);
}

/* -1: what it would lie in is there, and has no such directory. */
static tck_status_t open_job_dir(const struct config *config, const char *below, int *fd_out, struct error *err)
{
    char path[CONFIG_PATH + CONFIG_NAME + 1];
    const char *key = below == config->save_dir ? "save_dir" : "load_dir";
    int below_fd = open(below, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (below_fd < 0) {
        return path_unopened(key, below, errno, err);
    }
    *fd_out = openat(below_fd, config->job, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int errnum = *fd_out < 0 ? errno : 0;
    close(below_fd);
    if (errnum == 0 || errnum == ENOENT) {
        return TCK_OK;
    }
    job_dir(config, below, path);
    return path_unopened("directory", path, errnum, err);
}

static tck_status_t look(const struct config *config, const char *below, struct version wanted, struct candidates *out,
                         struct error *err)
{
    char path[CONFIG_PATH + CONFIG_NAME + 1];
    struct names names = {0};
    int fd = -1;
    tck_status_t status = open_job_dir(config, below, &fd, err);
    if (status != TCK_OK || fd < 0) {
        return status;
    }
    uint64_t forgotten = 0;
    job_dir(config, below, path);
    status = safe_fs_list(fd, &names, err);
    if (status == TCK_OK) {
        status = forgotten_read(fd, &forgotten, err);
    }
    for (size_t i = 0; i < names.count && status == TCK_OK; i++) {
        struct candidate candidate = {.below = below};
        if (version_dir_parse(names.names[i], &candidate.version) && is_wanted(candidate.version, wanted) &&
            candidate.version.term > forgotten) {
            status = add(out, candidate, err);
        }
    }
    names_free(&names);
    close(fd);
    return status == TCK_OK ? TCK_OK : error_prefix(err, "%.200s", path);
}

/* Newest first; of two of the same version that of save_dir, which was looked at first. */
static int compare_candidates(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return version_cmp(y->version, x->version);
}

/* ---- choosing ---------------------------------------------------------------------------------------------------- */

static tck_status_t check_owner(const struct found *found, const struct config *config, struct version version,
                                struct error *err)
{
    const struct manifest *manifest = &found->manifest;
    if (strcmp(manifest->job, config->job) != 0) {
        return error_set(err, TCK_ERR_CORRUPT, "%.200s: its manifest is of job %s, not of %s", found->path,
                         manifest->job, config->job);
    }
    if (!version_is(manifest->version, version)) {
        return error_set(err, TCK_ERR_CORRUPT,
                         "%.200s: its manifest is of term %" PRIu64 " step %" PRIu64 ", not of its name", found->path,
                         manifest->version.term, manifest->version.step);
    }
    return TCK_OK;
}

/* *standing_out: what the error says of the version. TCK_ERR_BUSY: it has gone away since it was listed. */
static tck_status_t try(const struct config *config, const struct candidate *candidate, struct found *out,
                        enum standing *standing_out, struct error *err)
{
    char name[DIR_NAME_MAX], path[CONFIG_PATH + CONFIG_NAME + 2 + DIR_NAME_MAX],
        job_path[CONFIG_PATH + CONFIG_NAME + 1];
    int job_fd, fd = -1;
    version_dir_name(candidate->version, name);
    job_dir(config, candidate->below, job_path);
    snprintf(path, sizeof(path), "%s/%s", job_path, name);
    *standing_out = STANDING_UNREADABLE;
    progress_moved();
    job_fd = open(job_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (job_fd < 0) {
        return error_set(err, status_of_errno(errno), "open directory %.200s: %m", job_path);
    }
    tck_status_t status = safe_fs_open_dir(job_fd, name, &fd, err);
    if (status == TCK_ERR_NOENT) {
        close(job_fd);
        return error_set(err, TCK_ERR_BUSY, "%.200s has gone away", path);
    }
    if (status == TCK_OK) {
        status = open_version(fd, path, out, err);
    }
    if (status == TCK_OK) {
        status = check_owner(out, config, candidate->version, err);
        if (status != TCK_OK) {
            found_free(out);
        }
    }
    *standing_out = standing_of(status, job_fd, name);
    close(job_fd);
    return status;
}

static tck_status_t nothing_found(const struct config *config, struct version wanted, struct error *err)
{
    bool two = config->save_dir[0] != '\0' && config->load_dir[0] != '\0';
    char what[32] = "nothing";
    if (wanted.step != TCK_NEWEST) {
        snprintf(what, sizeof(what), "no step %" PRIu64, wanted.step);
    }
    return error_set(err, TCK_ERR_NOENT, "job %s has published %s in %.160s%s%.160s", config->job, what,
                     config->save_dir, two ? " or " : "", config->load_dir);
}

/* The newest that is good. *unread_out: it could not be told, as one that is not older could not be read. */
static tck_status_t choose(const struct config *config, struct version wanted, const struct candidates *candidates,
                           struct found *out, bool *unread_out, struct error *err)
{
    struct error first = {0}, unread = {0};
    for (size_t i = 0; i < candidates->count; i++) {
        struct error why = {0};
        enum standing standing;
        if (try(config, &candidates->list[i], out, &standing, &why) == TCK_OK) {
            out->passed_over = first;
            return TCK_OK;
        }
        if (standing != STANDING_DAMAGED && unread.code == TCK_OK) {
            unread = why;
            *unread_out = standing == STANDING_UNREADABLE;
        }
        first = first.code == TCK_OK ? why : first;
        bool again = i + 1 < candidates->count &&
                     version_is(candidates->list[i].version, candidates->list[i + 1].version); /* in load_dir, too */
        if (unread.code != TCK_OK && !again) {
            *err = unread;
            return error_prefix(err, "the newest version of job %s cannot be read, and no older one is taken",
                                config->job);
        }
    }
    if (first.code != TCK_OK) {
        *err = first;
        return error_prefix(err, "no version of job %s can be read", config->job);
    }
    return nothing_found(config, wanted, err);
}

static tck_status_t look_everywhere(const struct config *config, struct version wanted, struct candidates *out,
                                    struct error *err)
{
    tck_status_t status = TCK_OK;
    if (config->save_dir[0] != '\0') {
        status = look(config, config->save_dir, wanted, out, err);
    }
    if (status == TCK_OK && config->load_dir[0] != '\0' && strcmp(config->load_dir, config->save_dir) != 0) {
        status = look(config, config->load_dir, wanted, out, err);
    }
    if (status == TCK_OK && out->count > 1) {
        qsort(out->list, out->count, sizeof(*out->list), compare_candidates);
    }
    return status;
}

static tck_status_t find_once(const struct config *config, struct version wanted, struct found *out, bool *unread_out,
                              struct error *err)
{
    struct candidates candidates = {0};
    tck_status_t status = look_everywhere(config, wanted, &candidates, err);
    *unread_out = status != TCK_OK;
    if (status == TCK_OK) {
        status = choose(config, wanted, &candidates, out, unread_out, err);
    }
    free(candidates.list);
    return status;
}

/* What does not exist will not come within seconds: the path is wrong, or nothing is mounted there. */
static tck_status_t check_exists(const char *key, const char *path, struct error *err)
{
    bool missing = path[0] != '\0' && access(path, F_OK) != 0 && errno == ENOENT;
    return missing ? path_unopened(key, path, ENOENT, err) : TCK_OK;
}

/* Steps of the pause are told as progress, for it is not storage that is waited for. */
static void pause_before(int look)
{
    uint64_t left_ns = (uint64_t)FIRST_PAUSE_NS << (look - 1);
    for (; left_ns > 0; left_ns -= PAUSE_STEP_NS) {
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_STEP_NS}, NULL);
        progress_moved();
    }
}

static tck_status_t find_configured(const struct config *config, struct version wanted, struct found *out,
                                    struct error *err)
{
    bool unread = true;
    tck_status_t status = check_exists("save_dir", config->save_dir, err);
    if (status == TCK_OK) {
        status = check_exists("load_dir", config->load_dir, err);
    }
    if (status != TCK_OK) {
        return status;
    }
    for (int i = 0; i < LOOKS_MAX && unread; i++) {
        if (i > 0) {
            pause_before(i);
        }
        status = find_once(config, wanted, out, &unread, err);
    }
    return status;
}

/* ---- within a time bound --------------------------------------------------------------------------------------- */

struct search {
    struct config config; /* unused with a path */
    struct version wanted;
    char *path;
    struct found found;
    tck_status_t status;
    struct error error;
};

static void search(void *job)
{
    struct search *s = job;
    s->status = s->path != NULL ? find_there(s->path, &s->found, &s->error)
                                : find_configured(&s->config, s->wanted, &s->found, &s->error);
}

static void drop_search(void *job)
{
    struct search *s = job;
    found_free(&s->found);
    free(s->path);
    free(s);
}

/* Takes the search over. */
static tck_status_t search_within(struct search *s, uint32_t limit_ms, struct found *out, struct error *err)
{
    s->found.dir_fd = -1;
    const struct bounded_work work = {.work = search, .drop = drop_search, .job = s};
    tck_status_t status = bounded_do(&work, limit_ms, err);
    if (status != TCK_OK) {
        return status;
    }
    status = s->status;
    if (status == TCK_OK) {
        *out = s->found;
        s->found = (struct found){.dir_fd = -1};
    } else {
        *err = s->error;
    }
    drop_search(s);
    return status;
}

tck_status_t find_by_path(const char *path, uint32_t limit_ms, struct found *out, struct error *err)
{
    struct search *s = calloc(1, sizeof(*s));
    if (s == NULL || (s->path = strdup(path)) == NULL) {
        free(s);
        return error_set(err, TCK_ERR_NOMEM, "no memory to look for a version");
    }
    tck_status_t status = search_within(s, limit_ms, out, err);
    return status == TCK_ERR_TIMEDOUT ? error_prefix(err, "%.200s", path) : status;
}

tck_status_t find_version(const struct config *config, struct version wanted, struct found *out, struct error *err)
{
    bool two = config->save_dir[0] != '\0' && config->load_dir[0] != '\0';
    if (config->save_dir[0] == '\0' && config->load_dir[0] == '\0') {
        return error_set(err, TCK_ERR_CONFIG, "neither save_dir nor load_dir is configured");
    }
    struct search *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory to look for a version");
    }
    s->config = *config;
    s->wanted = wanted;
    tck_status_t status = search_within(s, config->storage_timeout_ms, out, err);
    return status == TCK_ERR_TIMEDOUT ? error_prefix(err, "job %s in %.160s%s%.160s", config->job, config->save_dir,
                                                     two ? " or " : "", config->load_dir)
                                      : status;
}
