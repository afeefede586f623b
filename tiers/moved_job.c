/* SPDX-License-Identifier: Apache-2.0
 * Searches save_dir for the job under another derived name. Called before "nothing was ever saved" is concluded. */
#include "tiers/moved_job.h"

#include "base/config_names.h"
#include "tiers/names.h"
#include "tiers/safe_fs.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

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

/* An entry that is no directory, or that this user may not read, is not a job of this user. */
static tck_status_t has_versions(int save_fd, const char *name, bool *out, struct error *err)
{
    int fd;
    struct names names;
    *out = false;
    tck_status_t status = safe_fs_open_dir(save_fd, name, &fd, err);
    if (status == TCK_ERR_DENIED || status == TCK_ERR_NOENT) {
        return TCK_OK;
    }
    if (status != TCK_OK) {
        return status;
    }
    status = safe_fs_list(fd, &names, err);
    close(fd);
    if (status != TCK_OK) {
        return status == TCK_ERR_DENIED ? TCK_OK : status;
    }
    for (size_t i = 0; i < names.count && !*out; i++) {
        struct version version;
        *out = version_dir_parse(names.names[i], &version);
    }
    names_free(&names);
    return TCK_OK;
}

static tck_status_t find_among(int save_fd, const struct names *names, const struct config *config, struct error *err)
{
    for (size_t i = 0; i < names->count; i++) {
        const char *name = names->names[i];
        bool found = false;
        if (strcmp(name, config->job) == 0 || !may_be_derived(name)) {
            continue;
        }
        tck_status_t status = has_versions(save_fd, name, &found, err);
        if (status != TCK_OK) {
            return error_prefix(err, "%s: look for other jobs", config->save_dir);
        }
        if (found) {
            return error_set(err, TCK_ERR_EXIST,
                             "%s has versions of job %s, a name derived from another path of this directory (it was "
                             "moved, or is mounted elsewhere); to continue with them, set job to \"%s\"",
                             config->save_dir, name, name);
        }
    }
    return TCK_OK;
}

tck_status_t moved_job_check(const struct config *config, struct error *err)
{
    struct names names;
    if (!is_derived(config)) {
        return TCK_OK;
    }
    int fd = open(config->save_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return errno == EACCES ? TCK_OK
                               : error_set(err, status_of_errno(errno), "%s: cannot be opened: %m", config->save_dir);
    }
    tck_status_t status = safe_fs_list(fd, &names, err);
    if (status == TCK_OK) {
        status = find_among(fd, &names, config, err);
        names_free(&names);
    }
    close(fd);
    return status;
}
