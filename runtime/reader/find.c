/* SPDX-License-Identifier: Apache-2.0
 * A directory with a version's name is only a candidate: its manifest and the sizes of its files decide. */
#include "reader/find.h"
#include "tiers/beneath.h"
#include "tiers/names.h"
#include "tiers/version_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    tck_status_t status = beneath_read(found->dir_fd, MANIFEST_NAME, JSON_MAX_BYTES, &text, &len, err);
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

tck_status_t find_by_path(const char *path, struct found *out, struct error *err)
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

static tck_status_t look(const struct config *config, const char *below, struct version wanted, struct candidates *out,
                         struct error *err)
{
    char path[CONFIG_PATH + CONFIG_NAME + 1];
    struct names names = {0};
    job_dir(config, below, path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        return TCK_OK;
    }
    tck_status_t status =
        fd < 0 ? error_set(err, status_of_errno(errno), "open directory: %m") : beneath_list(fd, &names, err);
    for (size_t i = 0; i < names.count && status == TCK_OK; i++) {
        struct candidate candidate = {.below = below};
        if (version_dir_parse(names.names[i], &candidate.version) && is_wanted(candidate.version, wanted)) {
            status = add(out, candidate, err);
        }
    }
    names_free(&names);
    if (fd >= 0) {
        close(fd);
    }
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
        return error_set(err, TCK_ERR_DENIED, "%.200s: its manifest is of job %s, not of %s", found->path,
                         manifest->job, config->job);
    }
    if (!version_is(manifest->version, version)) {
        return error_set(err, TCK_ERR_CORRUPT,
                         "%.200s: its manifest is of term %" PRIu64 " step %" PRIu64 ", not of its name", found->path,
                         manifest->version.term, manifest->version.step);
    }
    return TCK_OK;
}

static tck_status_t try(const struct config *config, const struct candidate *candidate, struct found *out,
                        struct error *err)
{
    char name[DIR_NAME_MAX], path[CONFIG_PATH + CONFIG_NAME + 2 + DIR_NAME_MAX],
        job_path[CONFIG_PATH + CONFIG_NAME + 1];
    int job_fd, fd = -1;
    version_dir_name(candidate->version, name);
    job_dir(config, candidate->below, job_path);
    snprintf(path, sizeof(path), "%s/%s", job_path, name);
    job_fd = open(job_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (job_fd < 0) {
        return error_set(err, status_of_errno(errno), "open directory %.200s: %m", job_path);
    }
    tck_status_t status = beneath_open_dir(job_fd, name, &fd, err);
    close(job_fd);
    if (status == TCK_OK) {
        status = open_version(fd, path, out, err);
    }
    if (status == TCK_OK) {
        status = check_owner(out, config, candidate->version, err);
        if (status != TCK_OK) {
            found_free(out);
        }
    }
    return status;
}

static tck_status_t choose(const struct config *config, struct version wanted, struct candidates *candidates,
                           struct found *out, struct error *err)
{
    struct error first = {0};
    if (candidates->count > 1) {
        qsort(candidates->list, candidates->count, sizeof(*candidates->list), compare_candidates);
    }
    for (size_t i = 0; i < candidates->count; i++) {
        struct error why = {0};
        if (try(config, &candidates->list[i], out, &why) == TCK_OK) {
            out->passed_over = first;
            return TCK_OK;
        }
        first = first.code == TCK_OK ? why : first;
    }
    if (first.code != TCK_OK) {
        *err = first;
        return error_prefix(err, "no version of job %s can be read", config->job);
    }
    if (wanted.step == TCK_NEWEST) {
        return error_set(err, TCK_ERR_NOENT, "job %s has published nothing in %.200s", config->job, config->save_dir);
    }
    return error_set(err, TCK_ERR_NOENT, "job %s has published no step %" PRIu64 " in %.200s", config->job, wanted.step,
                     config->save_dir);
}

tck_status_t find_version(const struct config *config, struct version wanted, struct found *out, struct error *err)
{
    struct candidates candidates = {0};
    tck_status_t status = TCK_OK;
    if (config->save_dir[0] == '\0' && config->load_dir[0] == '\0') {
        return error_set(err, TCK_ERR_CONFIG, "neither save_dir nor load_dir is configured");
    }
    if (config->save_dir[0] != '\0') {
        status = look(config, config->save_dir, wanted, &candidates, err);
    }
    if (status == TCK_OK && config->load_dir[0] != '\0' && strcmp(config->load_dir, config->save_dir) != 0) {
        status = look(config, config->load_dir, wanted, &candidates, err);
    }
    if (status == TCK_OK) {
        status = choose(config, wanted, &candidates, out, err);
    }
    free(candidates.list);
    return status;
}
