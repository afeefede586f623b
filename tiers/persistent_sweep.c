/* SPDX-License-Identifier: Apache-2.0
 * Removes the remains of interrupted operations: old stages, the trash, part files. */
#include "tiers/persistent_dir.h"

#include "base/log.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SWEPT_SUFFIX ".swept"

static bool is_of_stage(const void *ctx, const char *name)
{
    char whole[BENEATH_NAME_MAX + 1];
    (void)ctx;
    if (safe_fs_is_part(name, whole)) {
        name = whole;
    }
    return manifest_is_name_in_version(name);
}

/* "<stage>" or "<stage>.swept", of a version that is not to be kept, of this term or an older one. */
static bool stage_is_old(const char *name, uint64_t term, struct version keep, bool *swept_out)
{
    char stage[DIR_NAME_MAX];
    struct version version;
    const char *dot = strchr(name, '.');
    size_t len = dot != NULL ? (size_t)(dot - name) : strlen(name);
    *swept_out = dot != NULL;
    if (len >= sizeof(stage) || (dot != NULL && strcmp(dot, SWEPT_SUFFIX) != 0)) {
        return false;
    }
    memcpy(stage, name, len);
    stage[len] = '\0';
    return stage_dir_parse(stage, &version) && version.term <= term && (*swept_out || !version_is(version, keep));
}

/* The stage loses its name before its files, so that an agent that stalled right before publishing it finds nothing to
 * move. */
static tck_status_t set_aside(int parent_fd, const char *stage, const char *swept, struct error *err)
{
    tck_status_t status = safe_fs_move_dir(parent_fd, stage, parent_fd, swept, err);
    return status == TCK_OK ? safe_fs_sync(parent_fd, err) : status;
}

static void sweep_stage(const struct persistent *p, int parent_fd, const char *name, bool swept)
{
    char aside[DIR_NAME_MAX + sizeof(SWEPT_SUFFIX)];
    char what[sizeof(STAGE_DIR) + 1 + sizeof(aside)];
    struct error err = {0};
    tck_status_t status = TCK_OK;
    snprintf(aside, sizeof(aside), "%s%s", name, swept ? "" : SWEPT_SUFFIX);
    snprintf(what, sizeof(what), STAGE_DIR "/%s", aside);
    struct deletion deletion = {parent_fd, aside, what, is_of_stage, NULL};
    if (!swept) {
        struct deletion whole = {parent_fd, name, what, is_of_stage, NULL};
        status = delete_allowed(&whole, &err);
        status = status == TCK_OK ? set_aside(parent_fd, name, aside, &err) : status;
    }
    if (status == TCK_OK) {
        status = delete_dir(p, &deletion, &err);
    }
    if (status != TCK_OK) {
        log_warn("%s/%s: a stage cannot be removed: %s", p->config->save_dir, p->config->job, err.text);
    }
}

static tck_status_t sweep_stages(const struct persistent *p, uint64_t term, struct version keep, struct error *err)
{
    struct names names;
    int parent_fd = -1;
    tck_status_t status = safe_fs_open_dir(p->job.fd, STAGE_DIR, &parent_fd, err);
    if (status != TCK_OK) {
        return status == TCK_ERR_NOENT ? TCK_OK : status;
    }
    status = safe_fs_list(parent_fd, &names, err);
    if (status == TCK_OK) {
        for (size_t i = names.count; i-- > 0;) { /* "<stage>.swept", from an earlier sweep, before "<stage>" */
            bool swept;
            if (stage_is_old(names.names[i], term, keep, &swept)) {
                sweep_stage(p, parent_fd, names.names[i], swept);
            }
        }
        names_free(&names);
    }
    close(parent_fd);
    return status;
}

/* Part files of LATEST, and of notes of terms that are over: no agent will finish them. */
static bool is_old_part(const char *name, uint64_t term)
{
    char whole[BENEATH_NAME_MAX + 1];
    uint64_t of_term;
    if (!safe_fs_is_part(name, whole)) {
        return false;
    }
    return strcmp(whole, LATEST_NAME) == 0 || (term_name_parse(whole, &of_term) && of_term <= term);
}

static tck_status_t remove_part(const struct persistent *p, const char *name, struct error *err)
{
    struct error outcome = {0};
    tck_status_t status = intend_deletion(p, name, err);
    if (status == TCK_OK) {
        outcome.code = safe_fs_unlink(p->job.fd, name, &outcome);
        audit_result(p->audit, AUDIT_DELETE, name, &outcome);
        status = outcome.code == TCK_OK ? TCK_OK : error_set(err, outcome.code, "%s", outcome.text);
    }
    return status;
}

static tck_status_t sweep_parts(const struct persistent *p, uint64_t term, struct error *err)
{
    struct names names;
    struct error why = {0};
    tck_status_t status = safe_fs_list(p->job.fd, &names, err);
    if (status != TCK_OK) {
        return status;
    }
    for (size_t i = 0; i < names.count; i++) {
        if (is_old_part(names.names[i], term) && remove_part(p, names.names[i], &why) != TCK_OK) {
            log_warn("%s/%s: a part file cannot be removed: %s", p->config->save_dir, p->config->job, why.text);
        }
    }
    names_free(&names);
    return TCK_OK;
}

tck_status_t dir_sweep(struct persistent *p, uint64_t term, struct version keep, struct error *err)
{
    tck_status_t status = sweep_stages(p, term, keep, err);
    if (status == TCK_OK) {
        empty_trash(p);
        status = sweep_parts(p, term, err);
    }
    return status;
}
