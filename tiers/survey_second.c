/* SPDX-License-Identifier: Apache-2.0
 * See survey_second.h. */
#include "tiers/survey_second.h"

#include "base/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* It owns all its data, since the call may be abandoned. */
struct look {
    char job[CONFIG_NAME], second_dir[CONFIG_PATH];
    uint64_t forgotten;
    struct version deeper; /* of save_dir: not looked at */
    struct version *good;  /* in save_dir; newest first */
    size_t good_count;
    struct survey found;
    bool gone;
    tck_status_t status;
    struct error error;
};

static int newest_first(const void *key, const void *element)
{
    const struct version *wanted = key, *other = element;
    return version_cmp(*other, *wanted);
}

static bool is_good_in_save_dir(const struct look *l, struct version version)
{
    return l->good_count > 0 && bsearch(&version, l->good, l->good_count, sizeof(*l->good), newest_first) != NULL;
}

static tck_status_t look_at(struct look *l, const struct version_dirs *dirs, const struct version_list *list,
                            struct error *err)
{
    l->found.candidates = calloc(list->count + 1, sizeof(*l->found.candidates));
    bool room = l->found.candidates != NULL;
    size_t others = 0;
    for (size_t i = 0; i < list->count && room && !l->gone; i++) {
        const struct published *which = &list->versions[i];
        struct version_look look;
        bool deep = version_cmp(which->version, l->deeper) <= 0; /* then all of save_dir comes first */
        if (which->version.term <= l->forgotten || is_good_in_save_dir(l, which->version) ||
            !survey_wants(&l->found, which->version, deep ? SIZE_MAX : others++)) {
            continue;
        }
        version_look(dirs, which, &look);
        progress_moved();
        l->gone = look.gone;
        room = look.gone || survey_add(&l->found, which, &look);
        version_look_free(&look);
    }
    return room ? TCK_OK : error_set(err, TCK_ERR_NOMEM, "no memory for the list of versions");
}

static void look(void *job, const struct folder *second)
{
    struct look *l = job;
    struct version_list list = {0};
    const struct version_dirs dirs = {
        .job = l->job, .save_dir = "", .second_dir = l->second_dir, .save = FOLDER_NONE, .second = *second};
    l->status = version_list(&dirs, &list, &l->error);
    if (l->status == TCK_OK) {
        l->status = look_at(l, &dirs, &list, &l->error);
    }
    version_list_free(&list);
}

static void drop(void *job)
{
    struct look *l = job;
    survey_free(&l->found);
    free(l->good);
    free(l);
}

static struct look *look_new(const struct version_dirs *dirs, const struct survey *saved)
{
    struct look *l = calloc(1, sizeof(*l));
    struct version *good = calloc(saved->count + 1, sizeof(*good));
    if (l == NULL || good == NULL) {
        free(l);
        free(good);
        return NULL;
    }
    snprintf(l->job, sizeof(l->job), "%s", dirs->job);
    snprintf(l->second_dir, sizeof(l->second_dir), "%s", dirs->second_dir);
    l->forgotten = saved->forgotten;
    l->found.range = saved->range;
    l->deeper = saved->deeper;
    l->good = good;
    for (size_t i = 0; i < saved->count; i++) {
        if (saved->candidates[i].standing == STANDING_GOOD) {
            good[l->good_count++] = saved->candidates[i].which.version;
        }
    }
    return l;
}

/* NOLINTNEXTLINE(readability-function-size): both places, and what was found */
tck_status_t survey_second(struct persistent *p, const struct version_dirs *dirs, const struct survey *saved,
                           struct survey *out, bool *gone_out, struct error *err)
{
    struct look *l = look_new(dirs, saved);
    if (l == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the list of versions");
    }
    const struct second_work work = {.work = look, .drop = drop, .job = l};
    tck_status_t status = second_do(p, &work, err);
    if (status != TCK_OK) {
        return error_prefix(err, "%.200s/%s", dirs->second_dir, dirs->job);
    }
    status = l->status;
    *err = l->error;
    if (status == TCK_OK) {
        *gone_out = l->gone;
        *out = l->found;
        l->found = (struct survey){0};
    }
    drop(l);
    return status;
}
