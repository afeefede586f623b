/* SPDX-License-Identifier: Apache-2.0
 * Searches save_dir for the job under another derived name. Called before "nothing was ever saved" is concluded. */
#include "tiers/moved_job.h"

#include "base/config_names.h"
#include "base/path.h"
#include "tiers/commit_notes.h"
#include "tiers/folder_url.h"
#include "tiers/names.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define FORMER_DEFAULT "default"

static bool is_derived(const struct config *config)
{
    char job[CONFIG_NAME];
    config_job_of(config->save_dir, job);
    return strcmp(job, config->job) == 0;
}

/* Names as config_job_of makes them. */
static bool may_be_derived(const char *name)
{
    const char *dash = strrchr(name, '-');
    bool digest = dash != NULL && strlen(dash + 1) == CONFIG_JOB_DIGEST_CHARS &&
                  strspn(dash + 1, "0123456789abcdef") == CONFIG_JOB_DIGEST_CHARS;
    return digest || strcmp(name, FORMER_DEFAULT) == 0;
}

static tck_status_t find_version(const struct folder *job, bool *out, struct error *err)
{
    struct names names;
    tck_status_t status = folder_list(job, &names, err);
    if (status != TCK_OK) {
        return status;
    }
    for (size_t i = 0; i < names.count && !*out; i++) {
        struct version version;
        *out = version_dir_parse(names.names[i], &version);
    }
    names_free(&names);
    return TCK_OK;
}

/* What was committed may never have been published, and then only the memory of agents has it. */
static tck_status_t find_commit(const struct folder *job, bool *out, struct error *err)
{
    uint64_t forgotten = 0;
    struct commit_notes notes = {0};
    tck_status_t status = commit_notes_read(job, UINT64_MAX, &forgotten, &notes, err);
    if (status == TCK_OK && notes.newest == 0 && notes.unsure.code != TCK_OK) {
        return error_set(err, notes.unsure.code, "%s", notes.unsure.text);
    }
    *out = notes.newest != 0;
    return status;
}

/* *what_out is NULL if it has saved nothing. An entry that is no directory, or that this user may not read, is not a
 * job of this user. */
static tck_status_t find_saved(const struct folder *save, const char *name, const char **what_out, struct error *err)
{
    struct folder job = FOLDER_NONE;
    bool version = false, commit = false;
    *what_out = NULL;
    tck_status_t status = folder_open(save, name, &job, err);
    if (status == TCK_ERR_DENIED || status == TCK_ERR_NOENT) {
        return TCK_OK;
    }
    if (status != TCK_OK) {
        return status;
    }
    status = find_version(&job, &version, err);
    if (status == TCK_OK && !version) {
        status = find_commit(&job, &commit, err);
    }
    folder_close(&job);
    *what_out = version ? "versions" : commit ? "notes of commits" : NULL;
    return status == TCK_ERR_DENIED ? TCK_OK : status;
}

static tck_status_t find_among(const struct folder *save, const struct names *names, const struct config *config,
                               struct error *err)
{
    for (size_t i = 0; i < names->count; i++) {
        const char *name = names->names[i], *what;
        if (strcmp(name, config->job) == 0 || !may_be_derived(name)) {
            continue;
        }
        tck_status_t status = find_saved(save, name, &what, err);
        if (status != TCK_OK) {
            return error_prefix(err, "%s: look for other jobs", config->save_dir);
        }
        if (what != NULL) {
            return error_set(err, TCK_ERR_EXIST,
                             "%s has %s of job %s, a name derived from another path of this directory (it was moved, "
                             "or is mounted elsewhere); to continue with them, set job to \"%s\"",
                             config->save_dir, what, name, name);
        }
    }
    return TCK_OK;
}

/* *out stays none if this user may not list the directory. */
static tck_status_t open_save_dir(const char *save_dir, struct folder *out, struct error *err)
{
    if (path_is_url(save_dir)) {
        return folder_of_url(save_dir, "", 0, out, err);
    }
    *out = folder_of_dir(open(save_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return folder_is(out) || errno == EACCES
               ? TCK_OK
               : error_set(err, status_of_errno(errno), "%s: cannot be opened: %m", save_dir);
}

tck_status_t moved_job_check(const struct config *config, struct error *err)
{
    struct names names;
    if (!is_derived(config)) {
        return TCK_OK;
    }
    struct folder save = FOLDER_NONE;
    tck_status_t status = open_save_dir(config->save_dir, &save, err);
    if (status != TCK_OK || !folder_is(&save)) {
        return status;
    }
    status = folder_list(&save, &names, err);
    if (status == TCK_OK) {
        status = find_among(&save, &names, config, err);
        names_free(&names);
    }
    folder_close(&save);
    return status;
}
