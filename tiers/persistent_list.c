/* SPDX-License-Identifier: Apache-2.0
 * Lists the published versions, each with its standing: one that cannot be read now is distinguished from one that is
 * proved to be damaged. */
#include "tiers/persistent_impl.h"

#include "base/log.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- one version ----------------------------------------------------------------------------------------------- */

struct version_dirs persistent_dirs(const struct persistent *p)
{
    return (struct version_dirs){.job = p->config->job,
                                 .save_dir = p->config->save_dir,
                                 .second_dir = config_second_dir(p->config),
                                 .second_may_be_away = p->config->archive_dir[0] != '\0',
                                 .save = p->job,
                                 .second = *second_place(p)};
}

tck_status_t name_version(tck_status_t status, struct version version, struct error *err)
{
    char name[DIR_NAME_MAX];
    if (status != TCK_OK) {
        version_dir_name(version, name);
        error_prefix(err, "%s", name);
    }
    return status;
}

tck_status_t persistent_manifest(struct persistent *p, const struct published *which, struct manifest *out,
                                 struct error *err)
{
    struct version_dirs dirs = persistent_dirs(p);
    struct folder dir;
    tck_status_t status = version_open(&dirs, which, &dir, err);
    if (status != TCK_OK) {
        return status;
    }
    status = version_manifest(&dir, p->config->job, which->version, out, err);
    folder_close(&dir);
    return name_version(status, which->version, err);
}

/* *out: the newest good one of these; VERSION_NONE: there is none. */
static tck_status_t first_good(struct persistent *p, const struct version_list *list, struct version_look *look,
                               struct version *out, struct error *err)
{
    struct version_dirs dirs = persistent_dirs(p);
    *out = VERSION_NONE;
    for (size_t i = 0; i < list->count; i++) {
        version_look(&dirs, &list->versions[i], look);
        persistent_came_further(p);
        if (look->standing == STANDING_GOOD) {
            *out = list->versions[i].version;
            return TCK_OK;
        }
        struct error why = look->why;
        enum standing standing = look->standing;
        version_look_free(look);
        if (standing == STANDING_UNREADABLE) {
            *err = why;
            return name_version(err->code, list->versions[i].version, err);
        }
    }
    return TCK_OK;
}

tck_status_t persistent_newest_good(struct persistent *p, struct version *out, uint64_t *wall_ms_out, struct error *err)
{
    struct version_dirs dirs = persistent_dirs(p);
    struct version_list list = {0};
    struct version_look look = {.dir = FOLDER_NONE};
    tck_status_t status = version_list(&dirs, &list, err);
    if (status == TCK_OK) {
        status = first_good(p, &list, &look, out, err);
    }
    if (status == TCK_OK) {
        *wall_ms_out = look.manifest.wall_ms;
        version_look_free(&look);
    }
    version_list_free(&list);
    return status;
}

/* ---- all versions ---------------------------------------------------------------------------------------------- */

#define LISTINGS_MAX 5

/* The candidate that was added last, if it is of this version; else NULL. */
static const struct candidate *last_of(const struct survey *survey, struct version version)
{
    if (survey->count == 0) {
        return NULL;
    }
    const struct candidate *last = &survey->candidates[survey->count - 1];
    return version_is(last->which.version, version) ? last : NULL;
}

/* If a version comes twice (then in succession), the one of better standing is kept; if equal, the one in save_dir. */
static tck_status_t add(struct survey *survey, const struct published *which, const struct version_look *look)
{
    const struct candidate *last = last_of(survey, which->version);
    if (last != NULL && last->standing <= look->standing) {
        return TCK_OK;
    }
    char *why = look->standing == STANDING_GOOD ? NULL : strdup(look->why.text);
    if (why == NULL && look->standing != STANDING_GOOD) {
        return TCK_ERR_NOMEM;
    }
    if (last != NULL) {
        free(last->why);
        survey->count--;
    }
    survey->candidates[survey->count++] = (struct candidate){*which, look->standing, why};
    return TCK_OK;
}

/* Whether what the second place has of it does not matter, since save_dir has it. */
static bool has_good(const struct survey *survey, const struct published *which)
{
    const struct candidate *last = last_of(survey, which->version);
    return which->from_second && last != NULL && last->standing == STANDING_GOOD;
}

/* TCK_ERR_BUSY: one of them has been deleted meanwhile. */
static tck_status_t look_at_all(struct persistent *p, const struct version_dirs *dirs, const struct version_list *list,
                                struct survey *survey, struct error *err)
{
    bool gone = false;
    tck_status_t status = TCK_OK;
    survey->candidates = calloc(list->count + 1, sizeof(*survey->candidates));
    if (survey->candidates == NULL) {
        status = TCK_ERR_NOMEM;
    }
    for (size_t i = 0; i < list->count && status == TCK_OK && !gone; i++) {
        struct version_look look;
        if (has_good(survey, &list->versions[i])) {
            continue;
        }
        version_look(dirs, &list->versions[i], &look);
        persistent_moved(p);
        persistent_came_further(p);
        gone = look.gone;
        status = gone ? TCK_OK : add(survey, &list->versions[i], &look);
        version_look_free(&look);
    }
    if (status != TCK_OK) {
        return error_set(err, status, "no memory for the list of versions");
    }
    return gone ? error_set(err, TCK_ERR_BUSY, "versions are deleted faster than they can be listed") : TCK_OK;
}

/* An archive that was not listed may have the newest version that is whole. */
static tck_status_t check_suffices(const struct survey *survey, struct version archived, struct error *err)
{
    const struct candidate *newest = survey->count > 0 ? &survey->candidates[0] : NULL;
    bool good = newest != NULL && newest->standing == STANDING_GOOD;
    bool older = good && version_cmp(archived, newest->which.version) > 0;
    if (good && !older) {
        return TCK_OK;
    }
    *err = survey->unread;
    return !older ? err->code
                  : error_prefix(err,
                                 "version %" PRIu64 ".%" PRIu64 " was copied to the archive, and save_dir has none "
                                 "that is as new",
                                 archived.term, archived.step);
}

static tck_status_t survey_once(struct persistent *p, const struct version_dirs *dirs, struct survey *out,
                                struct error *err)
{
    struct version_list list = {0};
    tck_status_t status = version_list(dirs, &list, err);
    if (status != TCK_OK) {
        return status;
    }
    *out = (struct survey){.forgotten = list.forgotten, .unread = list.unread};
    status = look_at_all(p, dirs, &list, out, err);
    if (status == TCK_OK && out->unread.code != TCK_OK) {
        status = check_suffices(out, list.archived, err);
    }
    version_list_free(&list);
    if (status != TCK_OK) {
        survey_free(out);
    }
    return status;
}

/* A version that vanishes during the survey was superseded, and its successor may not be in the listing: list again. */
static tck_status_t survey_all(struct persistent *p, const struct version_dirs *dirs, struct survey *out,
                               struct error *err)
{
    struct survey survey = {0};
    tck_status_t status = TCK_ERR_BUSY;
    for (int i = 0; i < LISTINGS_MAX && status == TCK_ERR_BUSY; i++) {
        status = survey_once(p, dirs, &survey, err);
    }
    if (status != TCK_OK) {
        return error_prefix(err, "list the published versions");
    }
    if (survey.unread.code != TCK_OK) {
        log_warn("going on with save_dir alone, whose newest version is good: %s", survey.unread.text);
    }
    *out = survey;
    return TCK_OK;
}

static tck_status_t survey_dirs(struct persistent *p, bool second_too, struct survey *out, struct error *err)
{
    struct error away = {0};
    if (second_too) {
        away.code = second_find(p, &away);
    }
    struct version_dirs dirs = persistent_dirs(p);
    dirs.second = second_too && away.code == TCK_OK ? dirs.second : FOLDER_NONE;
    dirs.away = away;
    return survey_all(p, &dirs, out, err);
}

void survey_free(struct survey *survey)
{
    for (size_t i = 0; i < survey->count; i++) {
        free(survey->candidates[i].why);
    }
    free(survey->candidates);
    *survey = (struct survey){0};
}

tck_status_t survey_save_dir(struct persistent *p, struct survey *out, struct error *err)
{
    return survey_dirs(p, false, out, err);
}

tck_status_t persistent_survey(struct persistent *p, struct survey *out, struct error *err)
{
    return survey_dirs(p, true, out, err);
}

tck_status_t persistent_survey_archive(struct persistent *p, struct survey *out, struct error *err)
{
    tck_status_t status = second_find(p, err);
    struct version_dirs dirs = persistent_dirs(p);
    dirs.save = FOLDER_NONE;
    return status == TCK_OK ? survey_all(p, &dirs, out, err) : status;
}

static void warn_of(const struct persistent *p, const struct candidate *candidate)
{
    static const char *const texts[] = {[STANDING_GOOD] = "is good",
                                        [STANDING_UNREADABLE] = "cannot be read now",
                                        [STANDING_FOREIGN] = "is of another format",
                                        [STANDING_DAMAGED] = "is no version"};
    char name[DIR_NAME_MAX];
    version_dir_name(candidate->which.version, name);
    log_warn("%s/%s/%s %s: %s", candidate->which.from_second ? config_second_dir(p->config) : p->config->save_dir,
             p->config->job, name, texts[candidate->standing], candidate->why);
}

tck_status_t survey_take_good(struct survey *survey, struct published **out, size_t *count_out, struct error *err)
{
    struct published *versions = calloc(survey->count + 1, sizeof(*versions));
    size_t count = 0;
    for (size_t i = 0; i < survey->count && versions != NULL; i++) {
        if (survey->candidates[i].standing == STANDING_GOOD) {
            versions[count++] = survey->candidates[i].which;
        }
    }
    survey_free(survey);
    if (versions == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the list of versions");
    }
    *out = versions;
    *count_out = count;
    return TCK_OK;
}

static tck_status_t list_good(struct persistent *p, bool archive_too, struct published **out, size_t *count_out,
                              struct error *err)
{
    struct survey survey;
    tck_status_t status = survey_dirs(p, archive_too || p->config->archive_dir[0] == '\0', &survey, err);
    if (status != TCK_OK) {
        return status;
    }
    for (size_t i = 0; i < survey.count; i++) {
        if (survey.candidates[i].standing != STANDING_GOOD) {
            warn_of(p, &survey.candidates[i]);
        }
    }
    return survey_take_good(&survey, out, count_out, err);
}

tck_status_t persistent_list(struct persistent *p, struct published **out, size_t *count_out, struct error *err)
{
    return list_good(p, true, out, count_out, err);
}

tck_status_t persistent_list_without_archive(struct persistent *p, struct published **out, size_t *count_out,
                                             struct error *err)
{
    return list_good(p, false, out, count_out, err);
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
