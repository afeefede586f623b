/* SPDX-License-Identifier: Apache-2.0
 * Deleting. A version is un-published first (renamed to the trash, directory synced), then deleted file by file, so a
 * version's name never stands for half a version. A crash in between leaves the rest in the trash, for the sweep. */
#include "tiers/persistent_dir.h"

#include "base/failpoint.h"
#include "base/log.h"
#include "base/secret.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- deleting one directory ------------------------------------------------------------------------------------ */

static tck_status_t check_entries(int dir_fd, const struct names *names, const struct deletion *deletion,
                                  struct error *err)
{
    for (size_t i = 0; i < names->count; i++) {
        uint64_t bytes;
        if (!deletion->may_delete(deletion->ctx, names->names[i])) {
            return error_set(err, TCK_ERR_DENIED, "contains %s, which Tierckpt did not create", names->names[i]);
        }
        tck_status_t status = safe_fs_size(dir_fd, names->names[i], &bytes, err); /* a regular file? */
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
        tck_status_t status = safe_fs_unlink(dir_fd, names->names[i], err);
        failpoint(prune, deleting);
        persistent_came_further(p);
        if (status != TCK_OK) {
            return status;
        }
    }
    return has_manifest ? safe_fs_unlink(dir_fd, MANIFEST_NAME, err) : TCK_OK;
}

/* Opens, lists and checks the directory in one go, so that only files that were checked are deleted. */
static tck_status_t open_checked(const struct deletion *deletion, int *dir_fd_out, struct names *names_out,
                                 struct error *err)
{
    tck_status_t status = safe_fs_open_dir(deletion->parent_fd, deletion->name, dir_fd_out, err);
    if (status != TCK_OK) {
        return status;
    }
    status = safe_fs_list(*dir_fd_out, names_out, err);
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
        log_warn("%s is deleted without an entry in the audit file, since storage is full: this makes room", what);
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
        outcome.code = safe_fs_remove_dir(deletion->parent_fd, deletion->name, &outcome);
    }
    audit_result(p->audit, AUDIT_DELETE, what, &outcome);
    return outcome.code == TCK_OK ? TCK_OK : error_set(err, outcome.code, "delete %s: %s", what, outcome.text);
}

static bool is_of_version(const void *ctx, const char *name)
{
    return manifest_has_name(ctx, name);
}

/* A version in the trash consisted only of our files when it was un-published. If its manifest is damaged, or a crash
 * of the machine persisted the manifest's deletion first, its files are those with names that only Tierckpt gives. */
static bool is_of_some_version(const void *ctx, const char *name)
{
    (void)ctx;
    return manifest_is_name_in_version(name);
}

/* ---- trash ----------------------------------------------------------------------------------------------------- */

/* Entries are named <version's name>.<8 hex digits>. */
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

/* Another process may delete the same directory meanwhile. A network file system then reports what is open as stale
 * (ESTALE) rather than as missing. */
static tck_status_t unless_gone(tck_status_t status, int parent_fd, const char *name, struct error *err)
{
    struct error ignored;
    int dir_fd = -1;
    if (status == TCK_OK || status == TCK_ERR_NOENT) {
        return status;
    }
    tck_status_t now = safe_fs_open_dir(parent_fd, name, &dir_fd, &ignored);
    if (now == TCK_OK) {
        close(dir_fd);
    }
    return now == TCK_ERR_NOENT ? error_set(err, now, "%s was deleted by another process", name) : status;
}

/* Deletes what is left of an un-published version. */
static tck_status_t delete_trashed(const struct persistent *p, int trash_fd, const char *name, struct error *err)
{
    struct manifest manifest;
    struct version version;
    char what[BENEATH_NAME_MAX + sizeof(TRASH_DIR) + 1];
    int dir_fd = -1;
    if (!trash_parse(name, &version)) {
        return error_set(err, TCK_ERR_DENIED, "%s was not created by Tierckpt", name);
    }
    snprintf(what, sizeof(what), TRASH_DIR "/%.*s", BENEATH_NAME_MAX, name);
    tck_status_t status = safe_fs_open_dir(trash_fd, name, &dir_fd, err);
    if (status != TCK_OK) {
        return status;
    }
    status = version_manifest(&(struct folder){.fd = dir_fd}, p->config->job, version, &manifest, err);
    close(dir_fd);
    if (status_proves_damage(status)) {
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
    tck_status_t status = safe_fs_open_dir(p->job.fd, TRASH_DIR, &trash_fd, &err);
    if (status == TCK_ERR_NOENT) {
        return;
    }
    if (status == TCK_OK) {
        status = safe_fs_list(trash_fd, &names, &err);
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

/* ---- a version ------------------------------------------------------------------------------------------------- */

/* Fails if the directory contains a foreign file: then the version stays published as a whole. */
static tck_status_t check_deletable(const struct persistent *p, struct version version, struct error *err)
{
    struct version_dirs dirs = persistent_dirs(p);
    struct published which = {.version = version};
    struct manifest manifest;
    struct names names;
    struct folder dir;
    tck_status_t status = version_open(&dirs, &which, &dir, err);
    if (status != TCK_OK) {
        return status;
    }
    status = version_manifest(&dir, p->config->job, version, &manifest, err);
    if (status == TCK_OK) {
        status = folder_list(&dir, &names, err);
        if (status == TCK_OK) {
            struct deletion deletion = {.may_delete = is_of_version, .ctx = &manifest};
            status = check_entries(dir.fd, &names, &deletion, err);
            names_free(&names);
        }
        manifest_free(&manifest);
    }
    folder_close(&dir);
    return status;
}

/* Moves the version durably from its published name into the trash. */
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
    status = safe_fs_move_dir(p->job.fd, name, trash_fd, trashed_out, err);
    failpoint(prune, moved);
    if (status == TCK_OK) {
        status = safe_fs_sync(trash_fd, err);
    }
    if (status == TCK_OK) {
        status = safe_fs_sync(p->job.fd, err);
    }
    return status;
}

tck_status_t dir_delete_version(const struct persistent *p, struct version version, struct error *err)
{
    char name[DIR_NAME_MAX], trashed[DIR_NAME_MAX];
    int trash_fd = -1;
    struct error outcome = {0};
    version_dir_name(version, name);
    tck_status_t status = unless_gone(check_deletable(p, version, err), p->job.fd, name, err);
    if (status == TCK_OK) {
        status = safe_fs_make_dir(p->job.fd, TRASH_DIR, &trash_fd, err);
    }
    if (status != TCK_OK) {
        return status;
    }
    status = intend_deletion(p, name, err);
    if (status == TCK_OK) {
        outcome.code = unpublish(p, version, trash_fd, trashed, &outcome);
        failpoint(prune, unpublished);
        if (outcome.code == TCK_OK) {
            outcome.code = unless_gone(delete_trashed(p, trash_fd, trashed, &outcome), trash_fd, trashed, &outcome);
            if (outcome.code == TCK_ERR_NOENT) { /* a sweep has emptied the trash */
                outcome = (struct error){0};
            }
        }
        audit_result(p->audit, AUDIT_DELETE, name, &outcome);
        status = outcome.code == TCK_OK ? TCK_OK : error_set(err, outcome.code, "%s", outcome.text);
    }
    close(trash_fd);
    return status;
}
