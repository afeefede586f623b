/* SPDX-License-Identifier: Apache-2.0
 * A damaged version is passed over. A version that cannot be read is an error if retries do not help, since it may
 * be the newest. */
#include "published/find_version.h"
#include "base/bounded.h"
#include "base/path.h"
#include "base/progress.h"
#include "published/retry.h"
#include "tiers/archive_note.h"
#include "tiers/folder_url.h"
#include "tiers/names.h"
#include "tiers/published_versions.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void found_free(struct found *found)
{
    folder_close(&found->dir);
    free(found->path);
    manifest_free(&found->manifest);
    *found = (struct found){.dir = FOLDER_NONE};
}

/* ---- one directory ----------------------------------------------------------------------------------------------- */

/* A version that lacks a file is damaged; with TCK_ERR_NOENT callers would conclude that there is no version. */
static tck_status_t damaged(struct error *err)
{
    return err->code = TCK_ERR_CORRUPT;
}

/* Takes ownership of the folder. */
static tck_status_t open_version(struct folder dir, const char *path, struct found *out, struct error *err)
{
    struct found found = {.dir = dir, .path = strdup(path)};
    tck_status_t status = found.path == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory for a path")
                                             : version_manifest_of_any(&found.dir, &found.manifest, err);
    if (status == TCK_OK) {
        status = version_check_files(&found.dir, &found.manifest, err);
    }
    status = status == TCK_ERR_NOENT ? damaged(err) : status;
    if (status != TCK_OK) {
        found_free(&found);
        return error_prefix(err, "%.200s", path);
    }
    *out = found;
    return TCK_OK;
}

/* The last component names the version's folder in the store. */
static tck_status_t find_in_store(const char *url, struct found *out, struct error *err)
{
    char place[CONFIG_PATH];
    struct folder dir;
    tck_status_t status = path_or_url(url, NULL, place, sizeof(place), err);
    char *name = status == TCK_OK ? strrchr(place, '/') : NULL;
    if (status == TCK_OK && name[-1] == '/') {
        status = error_set(err, TCK_ERR_INVAL, "%.200s is a bucket, and no version", url);
    }
    if (status != TCK_OK) {
        return status;
    }
    *name++ = '\0';
    status = folder_of_url(place, name, 0, &dir, err);
    return status == TCK_OK ? open_version(dir, url, out, err) : status;
}

static tck_status_t find_there(const char *path, struct found *out, struct error *err)
{
    if (path_is_url(path)) {
        return find_in_store(path, out, err);
    }
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? path_unopened("version", path, errno, err) : open_version(folder_of_dir(fd), path, out, err);
}

/* ---- the job's directories --------------------------------------------------------------------------------------- */

/* *out is none if the parent directory exists and has no such subdirectory. */
static tck_status_t open_job_dir(const char *key, const char *below, const char *job, struct folder *out,
                                 struct error *err)
{
    int below_fd = open(below, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (below_fd < 0) {
        return path_unopened(key, below, errno, err);
    }
    *out = folder_of_dir(openat(below_fd, job, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int errnum = folder_is(out) ? 0 : errno;
    close(below_fd);
    if (errnum == 0 || errnum == ENOENT) {
        return TCK_OK;
    }
    char path[CONFIG_PATH + CONFIG_NAME + 1];
    snprintf(path, sizeof(path), "%s/%s", below, job);
    return path_unopened("directory", path, errnum, err);
}

/* ---- the place beside save_dir ----------------------------------------------------------------------------------- */

/* An archive that hangs or whose server is down gets a part of the time only, so that save_dir is still read. */
static uint32_t time_beside_ms(const struct config *config)
{
    return config->archive_dir[0] != '\0' ? config->storage_timeout_ms / 4 : config->storage_timeout_ms;
}

struct beside {
    const char *key; /* a constant */
    char below[CONFIG_PATH], job[CONFIG_NAME];
    struct folder dir;
    bool unmade; /* archive_is_unmade, if it could not be opened */
    tck_status_t status;
    struct error error;
};

static void open_beside(void *job)
{
    struct beside *b = job;
    struct names names = {0};
    b->status = open_job_dir(b->key, b->below, b->job, &b->dir, &b->error);
    if (b->status == TCK_OK && folder_is(&b->dir)) {
        b->status = folder_list(&b->dir, &names, &b->error);
        names_free(&names);
    }
    b->unmade = b->status != TCK_OK && archive_is_unmade(b->below);
}

static void drop_beside(void *job)
{
    struct beside *b = job;
    folder_close(&b->dir);
    free(b);
}

/* An archive that was never made has no versions, like one without a folder of the job: check_known handles both. */
static tck_status_t open_dir_beside(const struct config *config, struct version_dirs *dirs, struct error *err)
{
    struct beside *b = calloc(1, sizeof(*b));
    if (b == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory to look for it");
    }
    b->key = config_second_key(config);
    snprintf(b->below, sizeof(b->below), "%s", config_second_dir(config));
    memcpy(b->job, config->job, sizeof(b->job));
    b->dir = FOLDER_NONE;
    const struct bounded_work work = {.work = open_beside, .drop = drop_beside, .job = b};
    tck_status_t status = bounded_do(&work, time_beside_ms(config), err);
    if (status != TCK_OK) {
        return error_prefix(err, "%s %.200s", config_second_key(config), config_second_dir(config));
    }
    bool empty = b->unmade && dirs->second_may_be_away && folder_is(&dirs->save);
    status = empty ? TCK_OK : b->status;
    if (status == TCK_OK) {
        dirs->second = b->dir;
        b->dir = FOLDER_NONE;
    } else {
        *err = b->error;
    }
    drop_beside(b);
    return status;
}

static void close_dirs(struct version_dirs *dirs)
{
    folder_close(&dirs->save);
    folder_close(&dirs->second);
}

/* An archive_dir without a job that was copied there before is another one, or is not mounted. */
static tck_status_t check_known(const struct version_dirs *dirs, struct error *err)
{
    uint64_t bytes;
    struct archive_note note;
    tck_status_t status = archive_note_read(&dirs->save, dirs->second_dir, &note, err);
    if (status == TCK_OK && note.there) {
        status = folder_is(&dirs->second) ? folder_size(&dirs->second, MARKER_NAME, &bytes, err) : TCK_ERR_NOENT;
        status = status == TCK_ERR_NOENT ? archive_note_check_empty(&dirs->save, dirs->second_dir, err) : status;
    }
    return status == TCK_OK ? TCK_OK : error_prefix(err, "archive_dir %.200s", dirs->second_dir);
}

/* The folder must be closed even after an error. */
static tck_status_t open_save(const struct config *config, struct version_dirs *out, struct error *err)
{
    *out = (struct version_dirs){.job = config->job,
                                 .save_dir = config->save_dir,
                                 .second_dir = config_second_dir(config),
                                 .second_may_be_away = config->archive_dir[0] != '\0',
                                 .save = FOLDER_NONE,
                                 .second = FOLDER_NONE};
    if (config->save_dir[0] == '\0') {
        return TCK_OK;
    }
    return path_is_url(config->save_dir) ? folder_of_url(config->save_dir, config->job, 0, &out->save, err)
                                         : open_job_dir("save_dir", config->save_dir, config->job, &out->save, err);
}

static tck_status_t open_second(const struct config *config, struct version_dirs *dirs, struct error *err)
{
    const char *dir = dirs->second_dir;
    tck_status_t status = TCK_OK;
    if (dir[0] == '\0' || strcmp(dir, config->save_dir) == 0) {
        return TCK_OK;
    }
    if (path_is_url(dir)) {
        uint32_t quiet_ms = config->archive_dir[0] != '\0' ? time_beside_ms(config) : 0;
        status = folder_of_url(dir, config->job, quiet_ms, &dirs->second, err);
    } else {
        status = open_dir_beside(config, dirs, err);
    }
    if (status == TCK_OK && dirs->second_may_be_away) {
        status = check_known(dirs, err);
    }
    if (status != TCK_OK && dirs->second_may_be_away) {
        dirs->away = *err;
        status = TCK_OK;
    }
    return status;
}

/* ---- choosing ---------------------------------------------------------------------------------------------------- */

static tck_status_t nothing_found(const struct config *config, struct version wanted, struct error *err)
{
    const char *second_dir = config_second_dir(config);
    bool two = config->save_dir[0] != '\0' && second_dir[0] != '\0';
    char what[32] = "nothing";
    if (wanted.step != TCK_NEWEST) {
        snprintf(what, sizeof(what), "no step %" PRIu64, wanted.step);
    }
    return error_set(err, TCK_ERR_NOENT, "job %s has published %s in %.160s%s%.160s", config->job, what,
                     config->save_dir, two ? " or " : "", second_dir);
}

/* Removes the versions that are not wanted from the list. */
static void keep_wanted(struct version_list *list, struct version wanted)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        struct version version = list->versions[i].version;
        if ((wanted.step == TCK_NEWEST || version.step == wanted.step) &&
            (wanted.term == 0 || version.term == wanted.term)) {
            list->versions[kept++] = list->versions[i];
        }
    }
    list->count = kept;
}

/* Takes over the result of a check, or its error. */
static tck_status_t take(const struct version_dirs *dirs, const struct published *which, struct version_look *look,
                         struct found *out, struct error *err)
{
    char name[DIR_NAME_MAX], path[CONFIG_PATH + CONFIG_NAME + 2 + DIR_NAME_MAX];
    version_dir_name(which->version, name);
    snprintf(path, sizeof(path), "%s/%s/%s", which->from_second ? dirs->second_dir : dirs->save_dir, dirs->job, name);
    if (look->standing != STANDING_GOOD) {
        *err = look->why;
        if (look->standing == STANDING_DAMAGED) {
            (void)damaged(err);
        }
        return error_prefix(err, "%.200s", path);
    }
    *out = (struct found){.dir = look->dir, .path = strdup(path), .manifest = look->manifest};
    if (out->path == NULL) {
        found_free(out);
        return error_set(err, TCK_ERR_NOMEM, "no memory for a path");
    }
    return TCK_OK;
}

/* Finds the newest good version. *again_out: unknown, because a version that may be newer could not be read. */
static tck_status_t choose(const struct config *config, const struct version_dirs *dirs,
                           const struct version_list *list, struct found *out, bool *again_out, struct error *err)
{
    struct error first = {0}, unread = {0};
    for (size_t i = 0; i < list->count; i++) {
        struct version_look look;
        struct error why = {0};
        progress_moved();
        version_look(dirs, &list->versions[i], &look);
        if (take(dirs, &list->versions[i], &look, out, &why) == TCK_OK) {
            out->passed_over = first;
            return TCK_OK;
        }
        if (look.standing != STANDING_DAMAGED && unread.code == TCK_OK) {
            unread = why;
            *again_out = look.standing != STANDING_FOREIGN;
        }
        first = first.code == TCK_OK ? why : first;
        if (list->unread.code != TCK_OK) { /* the archive may have one that is whole, and newer than the next one */
            break;
        }
        bool other = i + 1 < list->count && version_is(list->versions[i].version,
                                                       list->versions[i + 1].version); /* in the second place, too */
        if (unread.code != TCK_OK && !other) {
            *err = unread;
            return error_prefix(err, "the newest version of job %s cannot be read, and no older one is taken",
                                config->job);
        }
    }
    if (list->unread.code != TCK_OK) {
        *err = list->unread;
        *again_out = true;
        return error_prefix(err, "%s may have a version that is whole, and cannot be read", config_second_key(config));
    }
    *err = first;
    return first.code == TCK_OK ? TCK_OK : error_prefix(err, "no version of job %s can be read", config->job);
}

/* An archive that was not listed may have this step of a newer term, whose line of history counts instead; and it has
 * what was copied there. */
static bool may_be_older(const struct version_list *list, struct version wanted)
{
    bool newest = wanted.step == TCK_NEWEST && (wanted.term == 0 || wanted.term == list->archived.term);
    bool lacks = list->count == 0 || version_cmp(list->archived, list->versions[0].version) > 0;
    return list->unread.code != TCK_OK && (newest ? lacks : wanted.step != TCK_NEWEST && wanted.term == 0);
}

static tck_status_t find_in(const struct config *config, const struct version_dirs *dirs, struct version wanted,
                            struct found *out, bool *again_out, struct error *err)
{
    struct version_list list = {0};
    tck_status_t status = version_list(dirs, &list, err);
    *again_out = status != TCK_OK;
    if (status == TCK_OK) {
        keep_wanted(&list, wanted);
        list.count = may_be_older(&list, wanted) ? 0 : list.count;
        bool none = list.count == 0 && list.unread.code == TCK_OK;
        status = none ? nothing_found(config, wanted, err) : choose(config, dirs, &list, out, again_out, err);
    }
    version_list_free(&list);
    return status;
}

struct search {
    struct config config; /* unused with a path */
    struct version wanted;
    bool files_unseen;
    char *path;
    struct found found;
    tck_status_t status;
    struct error error;
};

/* A version is whole or not, so an archive need not be asked for one whose term is known if save_dir has it. */
static tck_status_t find_once(const struct search *s, struct found *out, bool *again_out, struct error *err)
{
    const struct config *config = &s->config;
    struct version wanted = s->wanted;
    struct version_dirs dirs;
    bool known = wanted.term != 0 && wanted.step != TCK_NEWEST;
    tck_status_t status = open_save(config, &dirs, err);
    dirs.files_unseen = s->files_unseen;
    *again_out = status != TCK_OK;
    if (status == TCK_OK && known && dirs.second_may_be_away &&
        find_in(config, &dirs, wanted, out, again_out, err) == TCK_OK) {
        close_dirs(&dirs);
        return TCK_OK;
    }
    if (status == TCK_OK) {
        status = open_second(config, &dirs, err);
        *again_out = status != TCK_OK;
    }
    if (status == TCK_OK) {
        status = find_in(config, &dirs, wanted, out, again_out, err);
    }
    close_dirs(&dirs);
    return status;
}

/* A missing directory does not appear within seconds: the path is wrong, or nothing is mounted there. */
static tck_status_t check_exists(const char *key, const char *path, struct error *err)
{
    bool missing = path[0] != '\0' && !path_is_url(path) && access(path, F_OK) != 0 && errno == ENOENT;
    return missing ? path_unopened(key, path, ENOENT, err) : TCK_OK;
}

static tck_status_t find_configured(const struct search *s, struct found *out, bool *again_out, struct error *err)
{
    tck_status_t status = check_exists("save_dir", s->config.save_dir, err);
    if (status == TCK_OK) {
        status = check_exists("load_dir", s->config.load_dir, err);
    }
    return status == TCK_OK ? find_once(s, out, again_out, err) : status;
}

/* ---- within a time bound --------------------------------------------------------------------------------------- */

static void search(void *job)
{
    struct search *s = job;
    bool again = true;
    for (int i = 0; i < READS_MAX && again; i++) {
        retry_pause(i);
        again = false;
        if (s->path != NULL) {
            s->status = retry_answer(find_there(s->path, &s->found, &s->error), &s->error);
            again = retry_helps(s->status) && !path_is_url(s->path) && access(s->path, F_OK) == 0;
        } else {
            s->status = retry_answer(find_configured(s, &s->found, &again, &s->error), &s->error);
        }
    }
}

static void drop_search(void *job)
{
    struct search *s = job;
    found_free(&s->found);
    free(s->path);
    free(s);
}

/* Takes ownership of the search. */
static tck_status_t search_within(struct search *s, uint32_t limit_ms, struct found *out, struct error *err)
{
    s->found.dir = FOLDER_NONE;
    const struct bounded_work work = {.work = search, .drop = drop_search, .job = s};
    tck_status_t status = bounded_do(&work, limit_ms, err);
    if (status != TCK_OK) {
        return status;
    }
    status = s->status;
    if (status == TCK_OK) {
        *out = s->found;
        s->found = (struct found){.dir = FOLDER_NONE};
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

static tck_status_t find_configured_version(const struct config *config, struct version wanted, bool files_unseen,
                                            struct found *out, struct error *err)
{
    const char *second_dir = config_second_dir(config);
    bool two = config->save_dir[0] != '\0' && second_dir[0] != '\0';
    if (config->save_dir[0] == '\0' && second_dir[0] == '\0') {
        return error_set(err, TCK_ERR_CONFIG, "none of save_dir, load_dir and archive_dir is configured");
    }
    struct search *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory to look for a version");
    }
    s->config = *config;
    s->wanted = wanted;
    s->files_unseen = files_unseen;
    tck_status_t status = search_within(s, config->storage_timeout_ms, out, err);
    return status == TCK_ERR_TIMEDOUT ? error_prefix(err, "job %s in %.160s%s%.160s", config->job, config->save_dir,
                                                     two ? " or " : "", second_dir)
                                      : status;
}

tck_status_t find_version(const struct config *config, struct version wanted, struct found *out, struct error *err)
{
    return find_configured_version(config, wanted, false, out, err);
}

tck_status_t find_files_unseen(const struct config *config, struct version wanted, struct found *out, struct error *err)
{
    return find_configured_version(config, wanted, true, out, err);
}
