/* SPDX-License-Identifier: Apache-2.0
 * Lists the published versions, each with its standing: one that cannot be read now is distinguished from one that is
 * proved to be damaged. */
#include "tiers/survey_second.h"

#include "base/log.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- one version ----------------------------------------------------------------------------------------------- */

bool persistent_is_in_save_dir(const struct persistent *p)
{
    return folder_is(&p->job);
}

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
#define VANISHING    "versions are deleted faster than they can be listed"

/* TCK_ERR_BUSY: one of them has been deleted meanwhile. */
static tck_status_t look_at_all(struct persistent *p, const struct version_dirs *dirs, const struct version_list *list,
                                struct survey *survey, struct error *err)
{
    bool gone = false;
    survey->candidates = calloc(list->count + 1, sizeof(*survey->candidates));
    bool room = survey->candidates != NULL;
    for (size_t i = 0; i < list->count && room && !gone; i++) {
        struct version_look look;
        if (!survey_wants(survey, list->versions[i].version, i)) {
            continue;
        }
        version_look(dirs, &list->versions[i], &look);
        persistent_moved(p);
        persistent_came_further(p);
        gone = look.gone;
        room = gone || survey_add(survey, &list->versions[i], &look);
        version_look_free(&look);
    }
    if (!room) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the list of versions");
    }
    return gone ? error_set(err, TCK_ERR_BUSY, VANISHING) : TCK_OK;
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

/* If a version is in both, the one of better standing is kept; if they are equal, that in save_dir. Takes over the
 * candidates of both, also if it fails. */
static tck_status_t merge(struct survey *saved, struct survey *second, struct error *err)
{
    struct candidate *all = calloc(saved->count + second->count + 1, sizeof(*all));
    size_t count = 0, i = 0, j = 0;
    if (all == NULL) {
        survey_free(second);
        return error_set(err, TCK_ERR_NOMEM, "no memory for the list of versions");
    }
    while (i < saved->count || j < second->count) {
        int order = i == saved->count ? 1 : -1;
        if (i < saved->count && j < second->count) {
            order = version_cmp(second->candidates[j].which.version, saved->candidates[i].which.version);
        }
        if (order != 0) {
            all[count++] = order < 0 ? saved->candidates[i++] : second->candidates[j++];
            continue;
        }
        struct candidate *a = &saved->candidates[i++], *b = &second->candidates[j++];
        bool better = b->standing < a->standing;
        candidate_free(better ? a : b);
        all[count++] = better ? *b : *a;
    }
    free(saved->candidates);
    free(second->candidates);
    saved->candidates = all;
    saved->count = count;
    saved->deeper = version_cmp(second->deeper, saved->deeper) > 0 ? second->deeper : saved->deeper;
    return TCK_OK;
}

/* Adds what the place beside save_dir has. An archive that cannot be looked at leaves out->unread. */
static tck_status_t add_second(struct persistent *p, const struct version_dirs *dirs, struct survey *out,
                               struct error *err)
{
    struct survey second = {0};
    struct error why = dirs->away;
    bool gone = false;
    if (why.code == TCK_OK && folder_is(&dirs->second)) {
        why.code = survey_second(p, dirs, out, &second, &gone, &why);
    }
    if (why.code == TCK_OK) {
        tck_status_t status = merge(out, &second, err);
        return status == TCK_OK && gone ? error_set(err, TCK_ERR_BUSY, VANISHING) : status;
    }
    if (!dirs->second_may_be_away) {
        *err = why;
        return why.code;
    }
    struct version archived;
    tck_status_t status = version_archived(dirs, out->forgotten, &archived, err);
    out->unread = why;
    return status == TCK_OK ? check_suffices(out, archived, err) : status;
}

static tck_status_t survey_once(struct persistent *p, const struct version_dirs *dirs, struct survey_range range,
                                struct survey *out, struct error *err)
{
    struct version_list list = {0};
    struct version_dirs saved = *dirs;
    saved.second = FOLDER_NONE;
    saved.away = (struct error){0};
    tck_status_t status = version_list(&saved, &list, err);
    if (status != TCK_OK) {
        return status;
    }
    *out = (struct survey){.forgotten = list.forgotten, .range = range};
    status = look_at_all(p, &saved, &list, out, err);
    if (status == TCK_OK) {
        status = add_second(p, dirs, out, err);
    }
    version_list_free(&list);
    if (status != TCK_OK) {
        survey_free(out);
    }
    return status;
}

/* A version that vanishes during the survey was superseded, and its successor may not be in the listing: list again. */
static tck_status_t survey_settled(struct persistent *p, const struct version_dirs *dirs, struct survey_range range,
                                   struct survey *out, struct error *err)
{
    struct survey survey = {0};
    tck_status_t status = TCK_ERR_BUSY;
    for (int i = 0; i < LISTINGS_MAX && status == TCK_ERR_BUSY; i++) {
        status = survey_once(p, dirs, range, &survey, err);
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

static tck_status_t survey_dirs(struct persistent *p, bool second_too, struct survey_range range, struct survey *out,
                                struct error *err)
{
    struct error away = {0};
    if (second_too) {
        away.code = second_find(p, &away);
    }
    struct version_dirs dirs = persistent_dirs(p);
    dirs.second = second_too && away.code == TCK_OK ? dirs.second : FOLDER_NONE;
    dirs.away = away;
    return survey_settled(p, &dirs, range, out, err);
}

tck_status_t persistent_survey_save_dir(struct persistent *p, struct survey *out, struct error *err)
{
    return survey_dirs(p, false, SURVEY_ALL, out, err);
}

tck_status_t persistent_survey(struct persistent *p, struct survey *out, struct error *err)
{
    return survey_dirs(p, true, SURVEY_ALL, out, err);
}

tck_status_t persistent_survey_newest(struct persistent *p, struct survey_range range, struct survey *out,
                                      struct error *err)
{
    return survey_dirs(p, true, range, out, err);
}

tck_status_t persistent_survey_archive(struct persistent *p, struct survey *out, struct error *err)
{
    tck_status_t status = second_find(p, err);
    struct version_dirs dirs = persistent_dirs(p);
    dirs.save = FOLDER_NONE;
    return status == TCK_OK ? survey_settled(p, &dirs, SURVEY_ALL, out, err) : status;
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
    bool second_too = archive_too || p->config->archive_dir[0] == '\0';
    tck_status_t status = survey_dirs(p, second_too, SURVEY_ALL, &survey, err);
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
