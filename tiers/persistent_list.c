/* SPDX-License-Identifier: Apache-2.0
 * Which versions are published: a directory with the right name is only a candidate; its manifest and the sizes of its
 * files decide. What cannot be read is kept apart from what is proved to be damaged. */
#include "tiers/persistent_impl.h"

#include "base/log.h"
#include "tiers/forgotten.h"
#include "tiers/version_standing.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MANIFEST_MAX_BYTES JSON_MAX_BYTES

/* ---- one version ----------------------------------------------------------------------------------------------- */

tck_status_t version_open(const struct persistent *p, const struct published *which, int *fd_out, struct error *err)
{
    char name[DIR_NAME_MAX];
    int parent_fd = which->from_load_dir ? p->load_fd : p->job_fd;
    version_dir_name(which->version, name);
    if (parent_fd < 0) {
        return error_set(err, TCK_ERR_NOENT, "%s: there is no load_dir", name);
    }
    return safe_fs_open_dir(parent_fd, name, fd_out, err);
}

static tck_status_t check_owner(const struct persistent *p, struct version version, const struct manifest *manifest,
                                struct error *err)
{
    if (strcmp(manifest->job, p->config->job) != 0) {
        return error_set(err, TCK_ERR_CORRUPT, MANIFEST_NAME " is of job %s, not of %s", manifest->job, p->config->job);
    }
    if (!version_is(manifest->version, version)) {
        return error_set(err, TCK_ERR_CORRUPT,
                         MANIFEST_NAME " is of term %" PRIu64 " step %" PRIu64 ", not of its name",
                         manifest->version.term, manifest->version.step);
    }
    return TCK_OK;
}

tck_status_t version_manifest(const struct persistent *p, int dir_fd, struct version version, struct manifest *out,
                              struct error *err)
{
    char *text;
    size_t len;
    struct manifest manifest;
    tck_status_t status = safe_fs_read(dir_fd, MANIFEST_NAME, MANIFEST_MAX_BYTES, &text, &len, err);
    if (status != TCK_OK) {
        return status;
    }
    status = manifest_parse(text, len, &manifest, err);
    free(text);
    if (status != TCK_OK) {
        return status;
    }
    status = check_owner(p, version, &manifest, err);
    if (status != TCK_OK) {
        manifest_free(&manifest);
        return status;
    }
    *out = manifest;
    return TCK_OK;
}

tck_status_t persistent_manifest(struct persistent *p, const struct published *which, struct manifest *out,
                                 struct error *err)
{
    char name[DIR_NAME_MAX];
    int dir_fd = -1;
    tck_status_t status = version_open(p, which, &dir_fd, err);
    if (status != TCK_OK) {
        return status;
    }
    status = version_manifest(p, dir_fd, which->version, out, err);
    close(dir_fd);
    if (status != TCK_OK) {
        version_dir_name(which->version, name);
        error_prefix(err, "%s", name);
    }
    return status;
}

/* ---- all versions ---------------------------------------------------------------------------------------------- */

#define LISTINGS_MAX 5

static tck_status_t check_files(const struct persistent *p, int dir_fd, struct version version, struct error *err)
{
    struct manifest manifest;
    tck_status_t status = version_manifest(p, dir_fd, version, &manifest, err);
    if (status == TCK_OK) {
        status = version_check_files(dir_fd, &manifest, err);
        manifest_free(&manifest);
    }
    return status;
}

static bool has_vanished(const struct persistent *p, const struct candidate *candidate)
{
    struct error ignored = {0};
    int dir_fd = -1;
    tck_status_t status = version_open(p, &candidate->which, &dir_fd, &ignored);
    if (status == TCK_OK) {
        close(dir_fd);
    }
    return status == TCK_ERR_NOENT;
}

/* *vanished_out: the directory is not there any more, because retention has taken it since it was listed. It may do so
 * while the files are looked at, too: what is missing then is no damage. */
static tck_status_t look_at(struct persistent *p, int parent_fd, const char *name, struct candidate *candidate,
                            bool *vanished_out)
{
    struct error why = {0};
    int dir_fd = -1;
    tck_status_t status = version_open(p, &candidate->which, &dir_fd, &why);
    if (status == TCK_OK) {
        status = check_files(p, dir_fd, candidate->which.version, &why);
        close(dir_fd);
    }
    persistent_moved(p);
    *vanished_out = status != TCK_OK && has_vanished(p, candidate);
    candidate->standing = standing_of(status, parent_fd, name);
    candidate->why = status == TCK_OK ? NULL : strdup(why.text);
    return status != TCK_OK && candidate->why == NULL ? TCK_ERR_NOMEM : TCK_OK;
}

static tck_status_t append(struct survey *survey, struct candidate candidate)
{
    struct candidate *grown = reallocarray(survey->candidates, survey->count + 1, sizeof(*grown));
    if (grown == NULL) {
        free(candidate.why);
        return TCK_ERR_NOMEM;
    }
    grown[survey->count++] = candidate;
    survey->candidates = grown;
    return TCK_OK;
}

/* Candidates of one directory, in any order, appended. TCK_ERR_BUSY: one of them went away meanwhile. */
static tck_status_t survey_dir(struct persistent *p, bool from_load_dir, struct survey *survey, struct error *err)
{
    struct names names;
    int dir_fd = from_load_dir ? p->load_fd : p->job_fd;
    if (dir_fd < 0) {
        return TCK_OK;
    }
    tck_status_t status = safe_fs_list(dir_fd, &names, err);
    if (status != TCK_OK) {
        return error_prefix(err, "%s/%s", from_load_dir ? p->config->load_dir : p->config->save_dir, p->config->job);
    }
    bool vanished = false;
    for (size_t i = 0; i < names.count && status == TCK_OK && !vanished; i++) {
        struct candidate candidate = {.which.from_load_dir = from_load_dir};
        if (!version_dir_parse(names.names[i], &candidate.which.version) ||
            candidate.which.version.term <= survey->forgotten) {
            continue;
        }
        status = look_at(p, dir_fd, names.names[i], &candidate, &vanished);
        persistent_came_further(p);
        if (status == TCK_OK && !vanished) {
            status = append(survey, candidate);
        } else {
            free(candidate.why);
        }
    }
    names_free(&names);
    if (status != TCK_OK) {
        return error_set(err, status, "no memory for the list of versions");
    }
    return vanished ? error_set(err, TCK_ERR_BUSY, "versions go away faster than they can be listed") : TCK_OK;
}

void survey_free(struct survey *survey)
{
    for (size_t i = 0; i < survey->count; i++) {
        free(survey->candidates[i].why);
    }
    free(survey->candidates);
    *survey = (struct survey){0};
}

/* Newest first; of two with the same version the better one, then the one in save_dir. */
static int compare_candidates(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    int order = version_cmp(y->which.version, x->which.version);
    order = order != 0 ? order : (int)x->standing - (int)y->standing;
    return order != 0 ? order : (int)x->which.from_load_dir - (int)y->which.from_load_dir;
}

static void drop_doubles(struct survey *survey)
{
    size_t kept = 0;
    for (size_t i = 0; i < survey->count; i++) {
        struct candidate *c = &survey->candidates[i];
        if (kept > 0 && version_is(survey->candidates[kept - 1].which.version, c->which.version)) {
            free(c->why);
        } else {
            survey->candidates[kept++] = *c;
        }
    }
    survey->count = kept;
}

/* What goes away while it is looked at was superseded, and what supersedes it may not have been listed yet. */
static tck_status_t survey_dirs(struct persistent *p, bool load_dir_too, struct survey *out, struct error *err)
{
    struct survey survey = {0};
    tck_status_t status = TCK_ERR_BUSY;
    for (int i = 0; i < LISTINGS_MAX && status == TCK_ERR_BUSY; i++) {
        survey_free(&survey);
        status = p->job_fd < 0 ? TCK_OK : forgotten_read(p->job_fd, &survey.forgotten, err);
        if (status != TCK_OK) {
            error_prefix(err, "%s/%s", p->config->save_dir, p->config->job);
        } else {
            status = survey_dir(p, false, &survey, err);
        }
        if (status == TCK_OK && load_dir_too) {
            status = survey_dir(p, true, &survey, err);
        }
    }
    if (status != TCK_OK) {
        survey_free(&survey);
        return error_prefix(err, "list the published versions");
    }
    if (survey.count > 0) {
        qsort(survey.candidates, survey.count, sizeof(*survey.candidates), compare_candidates);
    }
    drop_doubles(&survey);
    *out = survey;
    return TCK_OK;
}

tck_status_t survey_save_dir(struct persistent *p, struct survey *out, struct error *err)
{
    return survey_dirs(p, false, out, err);
}

tck_status_t persistent_survey(struct persistent *p, struct survey *out, struct error *err)
{
    return survey_dirs(p, true, out, err);
}

static void warn_of(const struct persistent *p, const struct candidate *candidate)
{
    static const char *const texts[] = {[STANDING_GOOD] = "is good",
                                        [STANDING_UNREADABLE] = "cannot be read now",
                                        [STANDING_FOREIGN] = "is of another format",
                                        [STANDING_DAMAGED] = "is no version"};
    char name[DIR_NAME_MAX];
    version_dir_name(candidate->which.version, name);
    log_warn("%s/%s/%s %s: %s", candidate->which.from_load_dir ? p->config->load_dir : p->config->save_dir,
             p->config->job, name, texts[candidate->standing], candidate->why);
}

tck_status_t persistent_list(struct persistent *p, struct published **out, size_t *count_out, struct error *err)
{
    struct survey survey;
    tck_status_t status = persistent_survey(p, &survey, err);
    if (status != TCK_OK) {
        return status;
    }
    struct published *versions = calloc(survey.count + 1, sizeof(*versions));
    size_t count = 0;
    for (size_t i = 0; i < survey.count && versions != NULL; i++) {
        if (survey.candidates[i].standing == STANDING_GOOD) {
            versions[count++] = survey.candidates[i].which;
        } else {
            warn_of(p, &survey.candidates[i]);
        }
    }
    survey_free(&survey);
    if (versions == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the list of versions");
    }
    *out = versions;
    *count_out = count;
    return TCK_OK;
}

tck_status_t persistent_list_invalid(struct persistent *p, void (*found)(void *ctx, const char *why), void *ctx,
                                     struct error *err)
{
    struct survey survey;
    tck_status_t status = survey_save_dir(p, &survey, err);
    if (status != TCK_OK) {
        return status;
    }
    for (size_t i = 0; i < survey.count; i++) {
        const struct candidate *c = &survey.candidates[i];
        if (c->standing != STANDING_GOOD) {
            char name[DIR_NAME_MAX];
            struct error why;
            version_dir_name(c->which.version, name);
            (void)error_set(&why, TCK_ERR_CORRUPT, "%s: %s", name, c->why);
            found(ctx, why.text);
        }
    }
    survey_free(&survey);
    return TCK_OK;
}
