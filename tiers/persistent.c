/* SPDX-License-Identifier: Apache-2.0
 * Opening the persistent tier: the directories, our marker in them, and the names of what lies there. */
#include "tiers/persistent_impl.h"

#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARKER_NAME   ".tierckpt"
#define MARKER_FORMAT 1
#define MARKER_MAX    4096
#define DIR_MODE      0755
#define AUDIT_MODE    0640

/* ---- names ----------------------------------------------------------------------------------------------------- */

void stage_dir_name(struct version version, char out[DIR_NAME_MAX])
{
    snprintf(out, DIR_NAME_MAX, "%" PRIu64 "-%" PRIu64, version.term, version.step);
}

bool stage_dir_parse(const char *name, struct version *out)
{
    struct version version;
    char again[DIR_NAME_MAX];
    if (sscanf(name, "%" SCNu64 "-%" SCNu64, &version.term, &version.step) != 2 || version_none(version)) {
        return false;
    }
    stage_dir_name(version, again);
    if (strcmp(name, again) != 0) {
        return false;
    }
    *out = version;
    return true;
}

/* ---- marker ---------------------------------------------------------------------------------------------------- */

static tck_status_t marker_write(const struct persistent *p, struct error *err)
{
    json_t *json = json_object();
    char *text = NULL;
    if (json != NULL && json_add_u64(json, "format", MARKER_FORMAT) && json_add_str(json, "job", p->config->job)) {
        text = json_print(json, false);
    }
    json_free(json);
    if (text == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for " MARKER_NAME);
    }
    tck_status_t status = beneath_write(p->job_fd, MARKER_NAME, text, strlen(text), err);
    free(text);
    return status;
}

/* TCK_ERR_NOENT if there is none. */
static tck_status_t marker_check(const struct persistent *p, struct error *err)
{
    char *text;
    size_t len;
    json_t *json;
    tck_status_t status = beneath_read(p->job_fd, MARKER_NAME, MARKER_MAX, &text, &len, err);
    if (status != TCK_OK) {
        return status;
    }
    status = json_parse(text, len, &json, err);
    free(text);
    if (status != TCK_OK) {
        error_prefix(err, MARKER_NAME);
        return status;
    }
    uint64_t format = 0;
    const char *job = json_str(json_get(json, "job"));
    if (!json_u64(json_get(json, "format"), &format) || format != MARKER_FORMAT) {
        status = error_set(err, TCK_ERR_PROTO, MARKER_NAME ": format %" PRIu64 ", this build knows format %d", format,
                           MARKER_FORMAT);
    } else if (job == NULL || strcmp(job, p->config->job) != 0) {
        status = error_set(err, TCK_ERR_DENIED, MARKER_NAME " is that of job %s", job == NULL ? "?" : job);
    }
    json_free(json);
    return status;
}

/* Nothing there but the markers that other agents are writing at this moment. */
static tck_status_t dir_is_unused(const struct persistent *p, bool *unused_out, struct error *err)
{
    struct names names;
    tck_status_t status = beneath_list(p->job_fd, &names, err);
    if (status != TCK_OK) {
        return status;
    }
    *unused_out = true;
    for (size_t i = 0; i < names.count; i++) {
        *unused_out = *unused_out && strncmp(names.names[i], MARKER_NAME, strlen(MARKER_NAME)) == 0;
    }
    names_free(&names);
    return TCK_OK;
}

static tck_status_t marker_find_or_make(const struct persistent *p, struct error *err)
{
    bool unused;
    tck_status_t status = marker_check(p, err);
    if (status != TCK_ERR_NOENT) {
        return status;
    }
    status = dir_is_unused(p, &unused, err);
    if (status == TCK_OK && unused) {
        return marker_write(p, err);
    }
    if (status == TCK_OK) {
        status = marker_check(p, err); /* another agent may have begun here between the two looks */
    }
    return status == TCK_ERR_NOENT ? error_set(err, TCK_ERR_DENIED, "is not empty and has no %s marker", MARKER_NAME)
                                   : status;
}

/* ---- directories ----------------------------------------------------------------------------------------------- */

/* save_dir is the user's: made with all its parents, and a symbolic link in it is the user's choice. */
static tck_status_t make_save_dir(const char *path, int *fd_out, struct error *err)
{
    char prefix[CONFIG_PATH];
    snprintf(prefix, sizeof(prefix), "%s", path);
    for (char *slash = strchr(prefix + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(prefix, DIR_MODE); /* what fails here and matters fails again below */
        *slash = '/';
    }
    if (mkdir(path, DIR_MODE) < 0 && errno != EEXIST) {
        return error_set(err, status_of_errno(errno), "make save_dir %s: %m", path);
    }
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return error_set(err, status_of_errno(errno), "open save_dir %s: %m", path);
    }
    *fd_out = fd;
    return TCK_OK;
}

static tck_status_t open_job_dir(struct persistent *p, struct error *err)
{
    const struct config *config = p->config;
    int save_fd = -1;
    tck_status_t status = make_save_dir(config->save_dir, &save_fd, err);
    if (status != TCK_OK) {
        return status;
    }
    status = beneath_make_dir(save_fd, config->job, &p->job_fd, err);
    if (status == TCK_OK) {
        status = beneath_sync(save_fd, err);
    }
    if (status == TCK_OK) {
        status = marker_find_or_make(p, err);
    }
    close(save_fd);
    if (status != TCK_OK) {
        error_prefix(err, "%s/%s", config->save_dir, config->job);
    }
    return status;
}

static bool is_same_dir(int a_fd, int b_fd)
{
    struct stat a, b;
    return fstat(a_fd, &a) == 0 && fstat(b_fd, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* A load_dir without versions of this job is no error: the job may just begin. */
static tck_status_t open_load_dir(struct persistent *p, struct error *err)
{
    const struct config *config = p->config;
    if (config->load_dir[0] == '\0') {
        return TCK_OK;
    }
    int dir_fd = open(config->load_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) {
        return error_set(err, status_of_errno(errno), "open load_dir %s: %m", config->load_dir);
    }
    tck_status_t status = beneath_open_dir(dir_fd, config->job, &p->load_fd, err);
    close(dir_fd);
    if (status == TCK_ERR_NOENT) {
        log_warn("load_dir %s has no directory %s: nothing to load from there", config->load_dir, config->job);
        return TCK_OK;
    }
    if (status == TCK_OK && is_same_dir(p->load_fd, p->job_fd)) {
        close(p->load_fd);
        p->load_fd = -1;
    }
    return status;
}

/* Beneath the job directory if it lies there (the default), else wherever the user wants it. */
static tck_status_t open_audit(struct persistent *p, struct error *err)
{
    const char *path = p->config->audit_file_path;
    int flags = O_RDWR | O_APPEND | O_CREAT, fd;
    char below[2 * CONFIG_PATH];
    int below_len = snprintf(below, sizeof(below), "%s/%s/", p->config->save_dir, p->config->job);

    if (strncmp(path, below, (size_t)below_len) == 0) {
        tck_status_t status = beneath_open(p->job_fd, path + below_len, flags, &fd, err);
        if (status != TCK_OK) {
            error_prefix(err, "audit file %s", path);
            return status;
        }
    } else {
        fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, AUDIT_MODE);
        if (fd < 0) { /* a pipe or a device that can only be written to */
            fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, AUDIT_MODE);
        }
        if (fd < 0) {
            return error_set(err, status_of_errno(errno), "open audit file %s: %m", path);
        }
    }
    return audit_new(fd, p->config->node, &p->audit, err);
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

static tck_status_t open_all(struct persistent *p, struct error *err)
{
    tck_status_t status = open_job_dir(p, err);
    if (status == TCK_OK) {
        status = open_load_dir(p, err);
    }
    if (status == TCK_OK) {
        status = open_audit(p, err);
    }
    if (status == TCK_OK && p->loop != NULL) {
        status = uring_new(p->loop, p->pool, URING_IF_ALLOWED, &p->uring, err);
    }
    return status;
}

tck_status_t persistent_new(const struct persistent_setup *setup, struct persistent **out, struct error *err)
{
    struct persistent *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "allocate the persistent tier");
    }
    *p = (struct persistent){.loop = setup->loop,
                             .pool = setup->pool,
                             .config = setup->config,
                             .ops = &posix_ops,
                             .job_fd = -1,
                             .load_fd = -1,
                             .refs = 1};
    tck_status_t status = open_all(p, err);
    if (status != TCK_OK) {
        persistent_free(p);
        return status;
    }
    *out = p;
    return TCK_OK;
}

void persistent_ref(struct persistent *p)
{
    p->refs++;
}

void persistent_unref(struct persistent *p)
{
    if (--p->refs > 0) {
        return;
    }
    audit_free(p->audit);
    if (p->load_fd >= 0) {
        close(p->load_fd);
    }
    if (p->job_fd >= 0) {
        close(p->job_fd);
    }
    free(p);
}

void persistent_free(struct persistent *p)
{
    if (p == NULL) {
        return;
    }
    p->closing = true;
    uring_free(p->uring);
    p->uring = NULL;
    persistent_unref(p);
}

void persistent_run_last(struct persistent *p, pool_work_fn *work, pool_done_fn *done, void *ctx)
{
    if (p->closing || pool_submit(p->pool, work, done, ctx) != TCK_OK) {
        work(ctx);
        done(ctx, false);
    }
}

int persistent_dir_fd(const struct persistent *p)
{
    return p->job_fd;
}
