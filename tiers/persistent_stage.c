/* SPDX-License-Identifier: Apache-2.0
 * From the stage to a published version: shard files are put into stage/<term>-<step>, the manifest is written beside
 * them, and one rename without replace makes them a version. */
#include "tiers/persistent_dir.h"

#include "base/failpoint.h"
#include "base/log.h"
#include "tiers/clone_put.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WHAT_BYTES (sizeof(STAGE_DIR) + DIR_NAME_MAX + MANIFEST_FILE_NAME)

/* ---- put ------------------------------------------------------------------------------------------------------- */

struct put {
    struct persistent *p;
    struct tier_item item;
    uint64_t epoch; /* of its beginning: once p's differs, this put is given up */
    tier_done_fn *done;
    void *ctx;
    struct clone_put *clone; /* NULL: its file shares nothing */
    int stage_fd;
    char name[MANIFEST_FILE_NAME];
    char what[WHAT_BYTES]; /* path below the job directory */
    struct error outcome;
};

static void put_end(void *ctx)
{
    struct put *op = ctx;
    progress_begin(op->item.progress);
    audit_result(op->p->audit, AUDIT_WRITE, op->what, &op->outcome);
    if (op->stage_fd >= 0) {
        close(op->stage_fd);
    }
    progress_end(op->item.progress);
}

static void put_ended(void *ctx, bool canceled)
{
    struct put *op = ctx;
    if (canceled) {
        put_end(op);
    }
    if (op->item.shared != NULL) {
        *op->item.shared = clone_put_bytes(op->clone);
    }
    clone_put_end(op->p, op->clone);
    op->done(op->ctx, &op->outcome);
    persistent_unref(op->p);
    free(op);
}

/* In the pool, since the audit file may be on storage that hangs. */
static void put_finish(struct put *op)
{
    if (op->outcome.code != TCK_OK) {
        error_prefix(&op->outcome, "%s/%s/%s", op->p->config->save_dir, op->p->config->job, op->what);
    }
    persistent_run_last(op->p, put_end, put_ended, op);
}

/* Several agents make the same stage at the same time; each finds it or makes it. */
tck_status_t stage_make(const struct persistent *p, struct version version, int *fd_out, struct error *err)
{
    char name[DIR_NAME_MAX];
    int parent_fd = -1;
    tck_status_t status = safe_fs_make_dir(p->job.fd, STAGE_DIR, &parent_fd, err);
    if (status != TCK_OK) {
        return status;
    }
    stage_dir_name(version, name);
    status = safe_fs_make_dir(parent_fd, name, fd_out, err);
    close(parent_fd);
    return status;
}

static void put_prepare(void *ctx)
{
    struct put *op = ctx;
    if (op->clone != NULL) {
        clone_put_digest(op->clone, op->p, op->epoch);
    }
    progress_begin(op->item.progress);
    op->outcome.code = dir_open_to_publish(op->p, &op->outcome);
    if (op->outcome.code == TCK_OK) {
        op->outcome.code = audit_intent(op->p->audit, AUDIT_WRITE, op->what, &op->outcome);
    }
    if (op->outcome.code == TCK_OK) {
        op->outcome.code = stage_make(op->p, op->item.version, &op->stage_fd, &op->outcome);
    }
    if (op->outcome.code == TCK_OK && op->clone != NULL) {
        clone_put_try(op->clone, op->stage_fd, op->name);
    }
    progress_end(op->item.progress);
    failpoint(stage, made);
}

static bool put_is_given_up(const struct put *op)
{
    return op->epoch != atomic_load(&op->p->epoch);
}

static void put_metadata_work(void *ctx)
{
    struct put *op = ctx;
    struct metadata metadata = {0};
    struct manifest_file written = {0};
    progress_begin(op->item.progress);
    tck_status_t status = metadata_take(&op->item, &metadata, &op->outcome);
    if (status == TCK_OK && put_is_given_up(op)) { /* then the slot may have had other content already */
        status = error_set(&op->outcome, TCK_ERR_CANCELED, METADATA_NAME ": was given up");
    }
    if (status == TCK_OK && metadata.bytes > 0) {
        const struct folder stage = folder_of_dir(op->stage_fd);
        status = beside_write(&stage, METADATA_NAME, &(struct beside){metadata.content, metadata.bytes}, &written,
                              &op->outcome);
    }
    progress_end(op->item.progress);
    free(written.crcs);
    free(metadata.content);
    op->outcome.code = status;
}

static void put_metadata_done(void *ctx, bool canceled)
{
    struct put *op = ctx;
    persistent_moved(op->p);
    if (canceled) {
        error_set(&op->outcome, TCK_ERR_CANCELED, "given up, or the persistent tier is closing");
    }
    put_finish(op);
}

static void put_written(void *ctx, const struct error *outcome);

static tck_status_t put_write(struct put *op)
{
    const struct file_to_write file = {op->stage_fd, op->name, &op->item, op->clone};
    return dir_write_file(op->p, &file, put_written, op, &op->outcome);
}

/* Once more, if it may have failed because of what its file shared. */
static bool put_again(struct put *op, const struct error *outcome)
{
    const struct tier_pace *pace = &op->p->pace;
    uint64_t shared = clone_put_bytes(op->clone);
    if (op->p->closing || put_is_given_up(op) || !clone_put_again(op->clone, outcome)) {
        return false;
    }
    if (pace->more != NULL) {
        pace->more(pace->ctx, shared);
    }
    op->outcome = (struct error){0};
    return put_write(op) == TCK_OK;
}

static void put_written(void *ctx, const struct error *outcome)
{
    struct put *op = ctx;
    if (put_again(op, outcome)) {
        return;
    }
    op->outcome = *outcome;
    if (outcome->code == TCK_OK && !op->p->closing) {
        tck_status_t status = pool_submit(op->p->pool, put_metadata_work, put_metadata_done, op);
        if (status == TCK_OK) {
            return; /* the thread has the outcome now */
        }
        (void)error_set(&op->outcome, status, "start to look for " METADATA_NAME);
    }
    put_finish(op);
}

static void put_prepared(void *ctx, bool canceled)
{
    struct put *op = ctx;
    struct persistent *p = op->p;
    tck_status_t status = op->outcome.code;
    persistent_moved(p);
    if (canceled || p->closing || put_is_given_up(op)) {
        status = error_set(&op->outcome, TCK_ERR_CANCELED, "given up, or the persistent tier is closing");
    }
    if (status == TCK_OK) {
        status = put_write(op);
    }
    if (status != TCK_OK) {
        put_finish(op);
    }
}

tck_status_t dir_put(struct persistent *p, const struct tier_item *item, tier_done_fn *done, void *ctx,
                     struct error *err)
{
    char stage[DIR_NAME_MAX];
    struct put *op = calloc(1, sizeof(*op));
    if (op == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a put");
    }
    *op = (struct put){.p = p, .item = *item, .done = done, .ctx = ctx, .stage_fd = -1};
    op->epoch = atomic_load(&p->epoch);
    manifest_file_name(item->shard, op->name);
    stage_dir_name(item->version, stage);
    snprintf(op->what, sizeof(op->what), STAGE_DIR "/%s/%s", stage, op->name);
    op->clone = clone_put_begin(p, &op->item);
    tck_status_t status = pool_submit(p->pool, put_prepare, put_prepared, op);
    if (status != TCK_OK) {
        error_set(err, status, "%s: start a put", op->what);
        clone_put_end(p, op->clone);
        free(op);
        return status;
    }
    persistent_ref(p);
    return TCK_OK;
}

/* ---- publish --------------------------------------------------------------------------------------------------- */

/* Part files of failed attempts must not become part of the version. */
static tck_status_t remove_parts(int stage_fd, struct error *err)
{
    struct names names;
    char whole[BENEATH_NAME_MAX + 1];
    tck_status_t status = safe_fs_list(stage_fd, &names, err);
    if (status != TCK_OK) {
        return status;
    }
    for (size_t i = 0; i < names.count && status == TCK_OK; i++) {
        if (safe_fs_is_part(names.names[i], whole)) {
            status = safe_fs_unlink(stage_fd, names.names[i], err);
        }
    }
    names_free(&names);
    return status;
}

static tck_status_t write_manifest(int stage_fd, const struct manifest *manifest, struct error *err)
{
    char *text;
    size_t len;
    tck_status_t status = print_manifest(manifest, &text, &len, err);
    if (status == TCK_OK) {
        status = safe_fs_write(stage_fd, MANIFEST_NAME, text, len, err);
        free(text);
    }
    return status;
}

/* Adds the files that belong to no shard to the manifest, and writes it. */
static tck_status_t describe_stage(struct persistent *p, const struct publish_ask *ask, int stage_fd, struct error *err)
{
    const struct folder dir = folder_of_dir(stage_fd);
    struct manifest whole = *ask->manifest;
    whole.index = (struct manifest_file){0};
    tck_status_t status = beside_describe(&dir, METADATA_NAME, &whole.metadata, err);
    if (status == TCK_OK) {
        status = index_make(p, ask, &dir, &whole.index, err);
    }
    if (status == TCK_OK) {
        status = check_not_given_up(ask, err);
    }
    if (status == TCK_OK) {
        status = write_manifest(stage_fd, &whole, err);
    }
    free(whole.metadata.crcs);
    free(whole.index.crcs);
    return status;
}

static tck_status_t complete_stage(struct persistent *p, const struct publish_ask *ask, int parent_fd,
                                   const char *stage, struct error *err)
{
    int stage_fd = -1;
    tck_status_t status = safe_fs_open_dir(parent_fd, stage, &stage_fd, err);
    if (status != TCK_OK) {
        return status;
    }
    status = version_check_files(&(struct folder){.fd = stage_fd}, ask->manifest, err);
    if (status == TCK_OK) {
        status = remove_parts(stage_fd, err);
    }
    if (status == TCK_OK) {
        failpoint(publish, checked);
        status = describe_stage(p, ask, stage_fd, err);
    }
    failpoint(publish, complete);
    close(stage_fd);
    return status;
}

/* The rename is the moment of publishing; the two syncs make it durable. */
static tck_status_t move_stage(const struct persistent *p, int parent_fd, const char *stage, const char *name,
                               struct error *err)
{
    struct error outcome = {0};
    tck_status_t status = audit_intent(p->audit, AUDIT_PUBLISH, name, err);
    if (status != TCK_OK) {
        return status;
    }
    failpoint(publish, intended);
    outcome.code = safe_fs_move_dir(parent_fd, stage, p->job.fd, name, &outcome);
    failpoint(publish, moved);
    if (outcome.code == TCK_OK) {
        outcome.code = safe_fs_sync(p->job.fd, &outcome);
    }
    if (outcome.code == TCK_OK) {
        outcome.code = safe_fs_sync(parent_fd, &outcome);
    }
    failpoint(publish, synced);
    audit_result(p->audit, AUDIT_PUBLISH, name, &outcome);
    return outcome.code == TCK_OK ? TCK_OK : error_set(err, outcome.code, "%s", outcome.text);
}

tck_status_t dir_publish(struct persistent *p, const struct publish_ask *ask, const char *name, struct error *err)
{
    char stage[DIR_NAME_MAX];
    int parent_fd = -1;
    tck_status_t status = safe_fs_open_dir(p->job.fd, STAGE_DIR, &parent_fd, err);
    if (status != TCK_OK) {
        return status;
    }
    stage_dir_name(ask->manifest->version, stage);
    status = complete_stage(p, ask, parent_fd, stage, err);
    if (status == TCK_OK) {
        status = check_not_superseded(p, ask, err);
    }
    if (status == TCK_OK) {
        status = move_stage(p, parent_fd, stage, name, err);
    }
    close(parent_fd);
    return status;
}

/* The publish of an older term may have hung until a newer one has published, or be repeated after that. */
static bool names_a_newer(const struct persistent *p, struct version version)
{
    struct version named;
    struct error ignored;
    int fd = -1;
    char name[DIR_NAME_MAX];
    if (version_latest(&p->job, &named, &ignored) != TCK_OK || version_cmp(named, version) <= 0) {
        return false;
    }
    version_dir_name(named, name);
    tck_status_t status = safe_fs_open_dir(p->job.fd, name, &fd, &ignored);
    if (status == TCK_OK) {
        close(fd);
    }
    return status != TCK_ERR_NOENT;
}

/* Called before the publish is reported to the trainers: if the next start gets an out-of-date listing, it finds the
 * version by this name. The version is already published, so a failure is only logged. */
void dir_published(const struct persistent *p, struct version version)
{
    struct error err;
    char line[DIR_NAME_MAX + 1], name[DIR_NAME_MAX];
    version_dir_name(version, name);
    int len = snprintf(line, sizeof(line), "%s\n", name);
    if (!names_a_newer(p, version) && safe_fs_write(p->job.fd, LATEST_NAME, line, (size_t)len, &err) != TCK_OK) {
        log_warn(LATEST_NAME " cannot be updated: %s", err.text);
    }
}
