/* SPDX-License-Identifier: Apache-2.0
 * Retention. A version is un-published first (renamed to the trash, directory synced), then deleted file by file: at no
 * moment does half a version stand under a version's name. A crash in between leaves it in the trash, for the sweep. */
#include "tiers/persistent_impl.h"

#include "base/failpoint.h"
#include "base/log.h"
#include "base/secret.h"
#include "core/retention.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- deleting one directory ------------------------------------------------------------------------------------ */

static tck_status_t check_entries(int dir_fd, const struct names *names, const struct deletion *deletion,
                                  struct error *err)
{
    for (size_t i = 0; i < names->count; i++) {
        uint64_t bytes;
        if (!deletion->may_delete(deletion->ctx, names->names[i])) {
            return error_set(err, TCK_ERR_DENIED, "holds %s, which is not ours", names->names[i]);
        }
        tck_status_t status = beneath_size(dir_fd, names->names[i], &bytes, err); /* a regular file? */
        if (status != TCK_OK) {
            return status;
        }
    }
    return TCK_OK;
}

static tck_status_t unlink_entries(const struct persistent *p, int dir_fd, const struct names *names, struct error *err)
{
    bool has_manifest = false;
    for (size_t i = 0; i < names->count; i++) {
        if (strcmp(names->names[i], MANIFEST_NAME) == 0) {
            has_manifest = true;
            continue;
        }
        tck_status_t status = beneath_unlink(dir_fd, names->names[i], err);
        failpoint(prune, deleting);
        persistent_came_further(p);
        if (status != TCK_OK) {
            return status;
        }
    }
    return has_manifest ? beneath_unlink(dir_fd, MANIFEST_NAME, err) : TCK_OK;
}

/* Opened, listed and checked in one go, so that what is deleted is what was looked at. */
static tck_status_t open_checked(const struct deletion *deletion, int *dir_fd_out, struct names *names_out,
                                 struct error *err)
{
    tck_status_t status = beneath_open_dir(deletion->parent_fd, deletion->name, dir_fd_out, err);
    if (status != TCK_OK) {
        return status;
    }
    status = beneath_list(*dir_fd_out, names_out, err);
    if (status == TCK_OK) {
        status = check_entries(*dir_fd_out, names_out, deletion, err);
        if (status == TCK_OK) {
            return TCK_OK;
        }
        names_free(names_out);
    }
    close(*dir_fd_out);
    return status;
}

static tck_status_t empty_dir(const struct persistent *p, const struct deletion *deletion, struct error *err)
{
    struct names names;
    int dir_fd = -1;
    tck_status_t status = open_checked(deletion, &dir_fd, &names, err);
    if (status == TCK_OK) {
        status = unlink_entries(p, dir_fd, &names, err);
        names_free(&names);
        close(dir_fd);
    }
    return status;
}

tck_status_t delete_allowed(const struct deletion *deletion, struct error *err)
{
    struct names names;
    int dir_fd = -1;
    tck_status_t status = open_checked(deletion, &dir_fd, &names, err);
    if (status == TCK_OK) {
        names_free(&names);
        close(dir_fd);
    }
    return status;
}

tck_status_t intend_deletion(const struct persistent *p, const char *what, struct error *err)
{
    tck_status_t status = audit_intent(p->audit, AUDIT_DELETE, what, err);
    if (status == TCK_ERR_NOSPC) {
        log_warn("%s is deleted to make room, of which there is none for the audit file", what);
        return TCK_OK;
    }
    return status;
}

tck_status_t delete_dir(const struct persistent *p, const struct deletion *deletion, struct error *err)
{
    struct error outcome = {0};
    const char *what = deletion->what;
    tck_status_t status = intend_deletion(p, what, err);
    if (status != TCK_OK) {
        return status;
    }
    outcome.code = empty_dir(p, deletion, &outcome);
    failpoint(prune, emptied);
    if (outcome.code == TCK_OK) {
        outcome.code = beneath_remove_dir(deletion->parent_fd, deletion->name, &outcome);
    }
    audit_result(p->audit, AUDIT_DELETE, what, &outcome);
    return outcome.code == TCK_OK ? TCK_OK : error_set(err, outcome.code, "delete %s: %s", what, outcome.text);
}

static bool is_of_version(const void *ctx, const char *name)
{
    const struct manifest *manifest = ctx;
    if (strcmp(name, MANIFEST_NAME) == 0) {
        return true;
    }
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        if (strcmp(name, manifest->files[i].name) == 0) {
            return true;
        }
    }
    return false;
}

/* What is in the trash was ours as a whole when it was un-published. Without a manifest that tells its files (deleted
 * before them in the order that a lost machine left, or damaged) those with names that only we give are it. */
static bool is_of_some_version(const void *ctx, const char *name)
{
    (void)ctx;
    return strcmp(name, MANIFEST_NAME) == 0 || manifest_is_file_name(name);
}

/* ---- trash ----------------------------------------------------------------------------------------------------- */

/* Entries are called <version's name>.<8 hex>. */
static void trash_name(struct version version, uint32_t number, char out[DIR_NAME_MAX])
{
    char name[DIR_NAME_MAX];
    version_dir_name(version, name);
    snprintf(out, DIR_NAME_MAX, "%.*s.%08x", DIR_NAME_MAX - 10, name, number);
}

static bool trash_parse(const char *name, struct version *out)
{
    char version[DIR_NAME_MAX];
    const char *number = strrchr(name, '.');
    if (number == NULL || strlen(name) >= sizeof(version)) {
        return false;
    }
    snprintf(version, sizeof(version), "%.*s", (int)(number - name), name);
    return version_dir_parse(version, out);
}

/* What is left of an un-published version. */
static tck_status_t delete_trashed(const struct persistent *p, int trash_fd, const char *name, struct error *err)
{
    struct manifest manifest;
    struct version version;
    char what[BENEATH_NAME_MAX + sizeof(TRASH_DIR) + 1];
    int dir_fd = -1;
    if (!trash_parse(name, &version)) {
        return error_set(err, TCK_ERR_DENIED, "%s is not ours", name);
    }
    snprintf(what, sizeof(what), TRASH_DIR "/%.*s", BENEATH_NAME_MAX, name);
    tck_status_t status = beneath_open_dir(trash_fd, name, &dir_fd, err);
    if (status != TCK_OK) {
        return status;
    }
    status = version_manifest(p, dir_fd, version, &manifest, err);
    close(dir_fd);
    if (status == TCK_ERR_NOENT || status == TCK_ERR_CORRUPT) {
        struct deletion deletion = {trash_fd, name, what, is_of_some_version, NULL};
        return delete_dir(p, &deletion, err);
    }
    if (status == TCK_OK) {
        struct deletion deletion = {trash_fd, name, what, is_of_version, &manifest};
        status = delete_dir(p, &deletion, err);
        manifest_free(&manifest);
    }
    return status;
}

void empty_trash(const struct persistent *p)
{
    struct names names;
    struct error err = {0};
    int trash_fd = -1;
    tck_status_t status = beneath_open_dir(p->job_fd, TRASH_DIR, &trash_fd, &err);
    if (status == TCK_ERR_NOENT) {
        return;
    }
    if (status == TCK_OK) {
        status = beneath_list(trash_fd, &names, &err);
        if (status != TCK_OK) {
            close(trash_fd);
        }
    }
    if (status != TCK_OK) {
        log_warn("%s/%s/" TRASH_DIR ": %s", p->config->save_dir, p->config->job, err.text);
        return;
    }
    for (size_t i = 0; i < names.count; i++) {
        if (delete_trashed(p, trash_fd, names.names[i], &err) != TCK_OK) {
            log_warn("%s/%s/" TRASH_DIR "/%s stays: %s", p->config->save_dir, p->config->job, names.names[i], err.text);
        }
    }
    names_free(&names);
    close(trash_fd);
}

/* ---- prune ----------------------------------------------------------------------------------------------------- */

/* That nothing foreign lies in the directory: else the version stays published as a whole. */
static tck_status_t check_deletable(const struct persistent *p, struct version version, struct error *err)
{
    struct published which = {.version = version};
    struct manifest manifest;
    struct names names;
    int dir_fd = -1;
    tck_status_t status = version_open(p, &which, &dir_fd, err);
    if (status != TCK_OK) {
        return status;
    }
    status = version_manifest(p, dir_fd, version, &manifest, err);
    if (status == TCK_OK) {
        status = beneath_list(dir_fd, &names, err);
        if (status == TCK_OK) {
            struct deletion deletion = {.may_delete = is_of_version, .ctx = &manifest};
            status = check_entries(dir_fd, &names, &deletion, err);
            names_free(&names);
        }
        manifest_free(&manifest);
    }
    close(dir_fd);
    return status;
}

/* From its published name into the trash, durably. */
static tck_status_t unpublish(const struct persistent *p, struct version version, int trash_fd,
                              char trashed_out[DIR_NAME_MAX], struct error *err)
{
    char name[DIR_NAME_MAX];
    uint32_t number;
    tck_status_t status = random_bytes(&number, sizeof(number));
    if (status != TCK_OK) {
        return error_set(err, status, "no random bytes");
    }
    version_dir_name(version, name);
    trash_name(version, number, trashed_out);
    failpoint(prune, intended);
    status = beneath_move_dir(p->job_fd, name, trash_fd, trashed_out, err);
    failpoint(prune, moved);
    if (status == TCK_OK) {
        status = beneath_sync(trash_fd, err);
    }
    if (status == TCK_OK) {
        status = beneath_sync(p->job_fd, err);
    }
    return status;
}

static tck_status_t remove_version(const struct persistent *p, struct version version, struct error *err)
{
    char name[DIR_NAME_MAX], trashed[DIR_NAME_MAX];
    int trash_fd = -1;
    struct error outcome = {0};
    version_dir_name(version, name);
    tck_status_t status = check_deletable(p, version, err);
    if (status == TCK_OK) {
        status = beneath_make_dir(p->job_fd, TRASH_DIR, &trash_fd, err);
    }
    if (status != TCK_OK) {
        return status;
    }
    status = intend_deletion(p, name, err);
    if (status == TCK_OK) {
        outcome.code = unpublish(p, version, trash_fd, trashed, &outcome);
        failpoint(prune, unpublished);
        if (outcome.code == TCK_OK) {
            outcome.code = delete_trashed(p, trash_fd, trashed, &outcome);
        }
        audit_result(p->audit, AUDIT_DELETE, name, &outcome);
        status = outcome.code == TCK_OK ? TCK_OK : error_set(err, outcome.code, "%s", outcome.text);
    }
    close(trash_fd);
    return status;
}

/* Only what is good counts: what is damaged or cannot be read is neither kept in place of another one nor deleted. The
 * caller frees. */
static tck_status_t good_versions(struct persistent *p, struct published **out, size_t *count_out, struct error *err)
{
    struct survey survey;
    tck_status_t status = survey_save_dir(p, &survey, err);
    if (status != TCK_OK) {
        return status;
    }
    struct published *versions = calloc(survey.count + 1, sizeof(*versions));
    size_t count = 0;
    for (size_t i = 0; i < survey.count && versions != NULL; i++) {
        if (survey.candidates[i].standing == STANDING_GOOD) {
            versions[count++] = survey.candidates[i].which;
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

/* Keeps in versions, which are the newest first, those that have to go; returns how many. */
static size_t select_surplus(struct published *versions, size_t count, uint32_t keep, struct version pinned)
{
    size_t surplus = 0;
    if (keep == 0 || count == 0) {
        return 0;
    }
    for (size_t i = keep; i < count; i++) {
        if (!version_is(versions[i].version, pinned)) {
            versions[surplus++] = versions[i];
        }
    }
    return surplus;
}

/* Removes them oldest first, so that whatever stops it leaves the newer ones; those that stay are logged and dropped
 * from the list, and *first_out is why the first of them does. */
static size_t remove_versions(const struct persistent *p, struct published *versions, size_t count,
                              struct error *first_out)
{
    size_t removed = count; /* the list's tail from here on was removed */
    for (size_t i = count; i-- > 0;) {
        char name[DIR_NAME_MAX];
        struct error err = {0};
        version_dir_name(versions[i].version, name);
        tck_status_t status = remove_version(p, versions[i].version, &err);
        if (status == TCK_ERR_NOENT) { /* a publish or another prune has removed it meanwhile */
            continue;
        }
        if (status != TCK_OK) {
            error_prefix(&err, "%s/%s/%s is not removed", p->config->save_dir, p->config->job, name);
            log_warn("%s", err.text);
            *first_out = first_out->code == TCK_OK ? err : *first_out;
            continue;
        }
        log_info("removed %s", name);
        versions[--removed] = versions[i];
    }
    memmove(versions, versions + removed, (count - removed) * sizeof(*versions));
    return count - removed;
}

/* NOLINTNEXTLINE(readability-function-size): what, whether, and where to tell */
tck_status_t persistent_prune(struct persistent *p, uint32_t keep, struct version pinned, bool dry_run,
                              struct published **removed_out, size_t *count_out, struct error *err)
{
    struct published *versions = NULL;
    size_t count = 0;
    tck_status_t status = good_versions(p, &versions, &count, err);
    if (status != TCK_OK) {
        return status;
    }
    count = select_surplus(versions, count, keep, pinned);
    struct error stays = {0};
    if (!dry_run && count > 0) {
        count = remove_versions(p, versions, count, &stays);
    }
    if (removed_out == NULL) {
        free(versions);
    } else {
        *removed_out = versions;
        *count_out = count;
    }
    return stays.code == TCK_OK ? TCK_OK : error_set(err, stays.code, "%s", stays.text);
}

/* ---- after a publish ------------------------------------------------------------------------------------------- */

/* Back to where a term began afresh, or to a note that does not tell: what came before stays. */
static struct history history_of(const struct persistent *p, struct version version)
{
    struct history history = {0};
    struct error ignored;
    while (history_add(&history, version)) {
        if (term_restored(p, version.term, &version, &ignored) != TCK_OK) {
            break;
        }
    }
    return history;
}

static size_t keep_surplus(const struct history *history, struct published *versions, size_t count, uint32_t keep)
{
    struct version *list = calloc(count + 1, sizeof(*list));
    bool *surplus = calloc(count + 1, sizeof(*surplus));
    size_t kept = 0;
    if (list != NULL && surplus != NULL) {
        for (size_t i = 0; i < count; i++) {
            list[i] = versions[i].version;
        }
        retention_select(history, list, count, keep, surplus);
        for (size_t i = 0; i < count; i++) {
            if (surplus[i]) {
                versions[kept++] = versions[i];
            }
        }
    }
    free(list);
    free(surplus);
    return kept;
}

tck_status_t prune_superseded(struct persistent *p, struct version published, uint32_t keep, struct error *err)
{
    struct published *versions = NULL;
    size_t count = 0;
    tck_status_t status = good_versions(p, &versions, &count, err);
    if (status != TCK_OK) {
        return status;
    }
    struct history history = history_of(p, published);
    count = keep_surplus(&history, versions, count, keep);
    if (count > 0) {
        struct error ignored = {0}; /* it is logged, and what stays is tried again after the next publish */
        (void)remove_versions(p, versions, count, &ignored);
    }
    free(versions);
    return TCK_OK;
}
