/* SPDX-License-Identifier: Apache-2.0
 * Opening the directories of the persistent tier. */
#include "tiers/job_marker.h"
#include "tiers/persistent_dir.h"

#include "base/log.h"
#include "base/path.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AUDIT_MODE 0640

/* ---- directories ----------------------------------------------------------------------------------------------- */

/* Explains why save_dir can be neither made nor opened; errnum is the errno of the attempt. */
static tck_status_t refuse_save_dir(const struct persistent *p, int errnum, struct error *err)
{
    const char *path = p->config->save_dir;
    char missing[CONFIG_PATH];
    struct stat st;
    path_first_missing(path, missing, sizeof(missing));
    if (errnum == ENOENT && lstat(path, &st) == 0 && S_ISLNK(st.st_mode)) {
        return error_set(err, TCK_ERR_NOENT, "it is a dangling symbolic link: create its target, or repair the link");
    }
    if (errnum == ENOENT) {
        return error_set(err, TCK_ERR_NOENT,
                         "%s does not exist, and only the last component of %s is created: mount or create it", missing,
                         persistent_key(p));
    }
    if (errnum == ENOTDIR) {
        return error_set(err, TCK_ERR_IO, "it, or a component of its path, is not a directory: choose another one");
    }
    if (errnum == EACCES || errnum == EPERM) {
        return error_set(err, TCK_ERR_DENIED,
                         "user %u may not write there: change its owner or mode, or choose another one", geteuid());
    }
    errno = errnum;
    return error_set(err, status_of_errno(errnum), "it cannot be created or opened: %m");
}

/* save_dir is the user's. It is made only if its parent exists: a missing parent is a file system that is not mounted,
 * and a directory made in its place would fill the root disk. A symbolic link in the path is the user's choice. */
static tck_status_t make_save_dir(const struct persistent *p, int *fd_out, struct error *err)
{
    const char *path = p->config->save_dir;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && (mkdir(path, DIR_MODE) == 0 || errno == EEXIST)) {
        fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (fd < 0) {
        tck_status_t status = refuse_save_dir(p, errno, err);
        error_prefix(err, "%s %s", persistent_key(p), path);
        return status;
    }
    if (path_is_memory(path)) {
        log_warn("%s %s is on a file system in memory, so what is saved there is lost with the node", persistent_key(p),
                 path);
    }
    *fd_out = fd;
    return TCK_OK;
}

static tck_status_t make_job_dir(struct persistent *p, int save_fd, struct error *err)
{
    tck_status_t status = safe_fs_make_dir(save_fd, p->config->job, &p->job.fd, err);
    if (status == TCK_OK) {
        status = safe_fs_sync(save_fd, err);
    }
    return status == TCK_OK ? marker_find_or_make(p, err) : status;
}

/* Creates nothing: a missing directory is not mounted. */
static tck_status_t find_claimed_dir(struct persistent *p, int save_fd, struct error *err)
{
    struct error why = {0};
    tck_status_t status = safe_fs_open_dir(save_fd, p->config->job, &p->job.fd, &why);
    if (status == TCK_OK) {
        status = marker_check(p, &p->job, &why);
    }
    if (status != TCK_OK) {
        return error_set(err, status,
                         status == TCK_ERR_NOENT ? "%s: mount the file system that this agent's memory belongs to, or "
                                                   "end the agent to discard its memory"
                                                 : "%s",
                         why.text);
    }
    return status == TCK_OK ? marker_check_claim(p, &p->job, err) : status;
}

static tck_status_t open_job_dir(struct persistent *p, struct error *err)
{
    const struct config *config = p->config;
    int save_fd = -1;
    tck_status_t status = make_save_dir(p, &save_fd, err);
    if (status != TCK_OK) {
        return status;
    }
    if (atomic_load(&p->claim_seen) == 0) {
        status = make_job_dir(p, save_fd, err);
    } else {
        status = find_claimed_dir(p, save_fd, err);
    }
    if (status == TCK_ERR_DENIED && faccessat(save_fd, ".", W_OK, AT_EACCESS) != 0) {
        status = refuse_save_dir(p, errno, err);
    }
    close(save_fd);
    if (status != TCK_OK) {
        error_prefix(err, "%s %s, job %s", persistent_key(p), config->save_dir, config->job);
    }
    return status;
}

static bool is_same_dir(int a_fd, int b_fd)
{
    struct stat a, b;
    return fstat(a_fd, &a) == 0 && fstat(b_fd, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

tck_status_t dir_open_load(struct persistent *p, struct error *err)
{
    const struct config *config = p->config;
    if (config->load_dir[0] == '\0') {
        return TCK_OK;
    }
    int dir_fd = open(config->load_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) {
        tck_status_t status = errno == ENOENT ? TCK_ERR_IO : status_of_errno(errno); /* not "there is no version" */
        return error_set(err, status, "load_dir %s cannot be opened: %m: mount it, or leave the key out",
                         config->load_dir);
    }
    tck_status_t status = safe_fs_open_dir(dir_fd, config->job, &p->second.fd, err);
    close(dir_fd);
    if (status == TCK_ERR_NOENT) {
        log_warn("load_dir %s has no directory %s: nothing to load from there", config->load_dir, config->job);
        return TCK_OK;
    }
    if (status == TCK_OK && is_same_dir(p->second.fd, p->job.fd)) {
        close(p->second.fd);
        p->second.fd = -1;
    }
    return status;
}

/* The audit file's name in the job directory, if it is there (the default); else NULL. */
static const char *audit_name(const struct config *config)
{
    char below[2 * CONFIG_PATH];
    int below_len = snprintf(below, sizeof(below), "%s/%s/", config->save_dir, config->job);
    bool lies_there = strncmp(config->audit_file_path, below, (size_t)below_len) == 0;
    return lies_there ? config->audit_file_path + below_len : NULL;
}

static tck_status_t open_audit_file(const struct config *config, int job_fd, int *fd_out, struct error *err)
{
    const char *path = config->audit_file_path, *name = audit_name(config);
    int flags = O_RDWR | O_APPEND | O_CREAT;
    if (name != NULL) {
        tck_status_t status = safe_fs_open(job_fd, name, flags, fd_out, err);
        return status == TCK_OK ? TCK_OK : error_prefix(err, "audit file %s", path);
    }
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, AUDIT_MODE);
    if (fd < 0) { /* a pipe or a device that can only be written to */
        fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, AUDIT_MODE);
    }
    if (fd < 0) {
        return error_set(err, status_of_errno(errno), "open audit file %s: %m", path);
    }
    *fd_out = fd;
    return TCK_OK;
}

static tck_status_t open_audit_later(const void *ctx, int *fd_out, struct error *err)
{
    const struct persistent *p = ctx;
    return open_audit_file(p->config, p->job.fd, fd_out, err);
}

/* Storage that cannot be written at the moment may still be read: nothing is written there without the audit file. */
tck_status_t dir_open_audit(struct persistent *p, struct error *err)
{
    int fd = -1;
    tck_status_t status = open_audit_file(p->config, p->job.fd, &fd, err);
    if (status != TCK_OK && errno != EROFS && errno != ENOSPC && errno != EDQUOT) {
        return status;
    }
    if (status != TCK_OK) {
        log_warn("%s: nothing is saved to storage until it can be opened", err->text);
        fd = -1;
    }
    status = audit_new(fd, p->config->node, &p->audit, err);
    if (status == TCK_OK) {
        audit_open_later(p->audit, open_audit_later, p);
    }
    return status;
}

/* ---- again ----------------------------------------------------------------------------------------------------- */

static bool is_stale(int fd)
{
    struct stat st;
    return fstat(fd, &st) != 0 && (errno == ESTALE || errno == ENOTCONN);
}

/* Where the file system tells: the descriptor of a removed directory remains, but nothing can be made in it. */
static bool is_removed(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_nlink == 0;
}

/* Whether the path leads to nothing or to another directory. If it cannot be followed for another reason, the open
 * directory is as good as before. */
static bool is_covered(const struct persistent *p)
{
    struct stat open_dir, found;
    int save_fd = open(p->config->save_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = save_fd < 0 ? -1 : fstatat(save_fd, p->config->job, &found, AT_SYMLINK_NOFOLLOW);
    bool gone = rc != 0 && (errno == ENOENT || errno == ENOTDIR);
    if (save_fd >= 0) {
        close(save_fd);
    }
    if (rc != 0 || fstat(p->job.fd, &open_dir) != 0) {
        return gone;
    }
    return found.st_dev != open_dir.st_dev || found.st_ino != open_dir.st_ino;
}

static tck_status_t open_dir_again(const char *path, const char *job, int *fd_out, struct error *err)
{
    int dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) {
        return error_set(err, status_of_errno(errno), "open it again: %m");
    }
    tck_status_t status = safe_fs_open_dir(dir_fd, job, fd_out, err);
    close(dir_fd);
    return status;
}

/* Replaces the file behind the descriptor `number` atomically, since pool threads use it. Takes over fd. */
static tck_status_t put_in_place(int fd, int number, struct error *err)
{
    int rc = dup3(fd, number, O_CLOEXEC);
    tck_status_t status = rc < 0 ? error_set(err, status_of_errno(errno), "replace a descriptor: %m") : TCK_OK;
    close(fd);
    return status;
}

static tck_status_t open_audit_again(const struct persistent *p, int job_fd, struct error *err)
{
    int fd = -1;
    if (audit_name(p->config) == NULL) {
        return TCK_OK;
    }
    tck_status_t status = open_audit_file(p->config, job_fd, &fd, err);
    return status == TCK_OK ? audit_move(p->audit, fd, err) : status;
}

static tck_status_t open_job_dir_again(const struct persistent *p, struct error *err)
{
    int job_fd = -1;
    tck_status_t status = open_dir_again(p->config->save_dir, p->config->job, &job_fd, err);
    if (status != TCK_OK) {
        return status;
    }
    status = marker_check(p, &(struct folder){.fd = job_fd}, err);
    if (status == TCK_OK) {
        status = marker_check_claim(p, &(struct folder){.fd = job_fd}, err);
    }
    if (status == TCK_OK) {
        status = open_audit_again(p, job_fd, err);
    }
    if (status != TCK_OK) {
        close(job_fd);
        return status;
    }
    return put_in_place(job_fd, p->job.fd, err);
}

/* A missing directory is not mounted: callers must not mistake that for a missing file. */
static tck_status_t stale_error(const char *what, const struct error *why, struct error *err)
{
    return error_set(err, why->code == TCK_ERR_NOENT ? TCK_ERR_IO : why->code, "%s is stale: %s", what, why->text);
}

/* Neither without its terms nor in an empty directory may the job go on: terms would be counted from the beginning. */
static tck_status_t removed_error(const struct persistent *p, const struct error *why, struct error *err)
{
    const struct config *config = p->config;
    return error_set(err, why->code == TCK_ERR_NOENT ? TCK_ERR_IO : why->code,
                     "%s/%s was removed while the job runs: put it back with what it had, or start the job under "
                     "another name. Memory keeps the job for linger_s (%u s) after its trainers have ended (%s)",
                     config->save_dir, config->job, config->linger_s, why->text);
}

/* The directory that is open still works, but a later start would not find what is published there. */
static tck_status_t covered_error(const struct persistent *p, const struct error *why, struct error *err)
{
    const struct config *config = p->config;
    return error_set(err, why->code == TCK_ERR_NOENT ? TCK_ERR_IO : why->code,
                     "%s/%s no longer leads to the job's directory: that was moved, or is no longer mounted, or "
                     "something else is mounted over it. Put it back in its place (%s)",
                     config->save_dir, config->job, why->text);
}

static tck_status_t open_again_if_lost(struct persistent *p, struct error *err)
{
    struct error why = {0};
    bool removed = is_removed(p->job.fd);
    if (!removed && !is_stale(p->job.fd)) {
        return TCK_OK;
    }
    if (open_job_dir_again(p, &why) != TCK_OK) {
        return removed ? removed_error(p, &why, err) : stale_error("save_dir", &why, err);
    }
    log_warn("%s/%s was %s and has been opened again", p->config->save_dir, p->config->job,
             removed ? "removed" : "stale");
    return TCK_OK;
}

/* If the directory is emptied while the job uses it, the job keeps writing there without its marker, and no later start
 * would accept the directory. */
static void keep_marker(const struct persistent *p)
{
    struct error err;
    if (marker_check(p, &p->job, &err) != TCK_ERR_NOENT) {
        return;
    }
    if (marker_write(p, &err) == TCK_OK) {
        log_warn("%s/%s was emptied while the job runs: " MARKER_NAME " was made again; what was published before may "
                 "be lost",
                 p->config->save_dir, p->config->job);
    } else {
        log_warn("%s/%s was emptied while the job runs, and " MARKER_NAME " cannot be made again: %s",
                 p->config->save_dir, p->config->job, err.text);
    }
}

tck_status_t dir_open_load_again(struct persistent *p, struct error *err)
{
    struct error why = {0};
    if (p->config->load_dir[0] != '\0' && p->second.fd >= 0 && is_stale(p->second.fd)) {
        int fd = -1;
        tck_status_t status = open_dir_again(p->config->load_dir, p->config->job, &fd, &why);
        status = status == TCK_OK ? put_in_place(fd, p->second.fd, &why) : status;
        if (status != TCK_OK) {
            return stale_error("load_dir", &why, err);
        }
    }
    return TCK_OK;
}

tck_status_t dir_open_again(struct persistent *p, struct error *err)
{
    tck_status_t status = open_again_if_lost(p, err);
    if (status != TCK_OK) {
        return status;
    }
    keep_marker(p);
    return dir_open_load_again(p, err);
}

tck_status_t dir_open_to_publish(struct persistent *p, struct error *err)
{
    struct error why = {0};
    tck_status_t status = dir_open_again(p, err);
    if (status != TCK_OK || !is_covered(p)) {
        return status;
    }
    if (open_job_dir_again(p, &why) != TCK_OK) {
        return covered_error(p, &why, err);
    }
    log_warn("%s/%s was replaced and has been opened again", p->config->save_dir, p->config->job);
    return TCK_OK;
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

tck_status_t dir_open(struct persistent *p, struct error *err)
{
    return open_job_dir(p, err);
}

tck_status_t dir_find(struct persistent *p, struct error *err)
{
    const struct config *config = p->config;
    int save_fd = open(config->save_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (save_fd < 0) {
        return path_unopened("save_dir", config->save_dir, errno, err);
    }
    tck_status_t status = safe_fs_open_dir(save_fd, config->job, &p->job.fd, err);
    close(save_fd);
    if (status == TCK_ERR_NOENT) {
        return TCK_OK;
    }
    if (status == TCK_OK) {
        status = marker_find(p, err);
    }
    return status == TCK_OK ? TCK_OK : error_prefix(err, "save_dir %s, job %s", config->save_dir, config->job);
}

tck_status_t dir_secret(struct persistent *p, struct secret *out, struct error *err)
{
    return secret_load_or_make(p->job.fd, "secret", out, err);
}
