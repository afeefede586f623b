/* SPDX-License-Identifier: Apache-2.0
 * From the stage to a published version: shard files are put into stage/<term>-<step>, the manifest is written beside
 * them, and one rename without replace makes them a version. */
#include "tiers/persistent_impl.h"

#include "base/failpoint.h"
#include "base/log.h"
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
    int stage_fd;
    char name[MANIFEST_FILE_NAME];
    char what[WHAT_BYTES]; /* path below the job directory */
    struct error outcome;
};

static void put_finish(struct put *op)
{
    if (op->outcome.code != TCK_OK) {
        error_prefix(&op->outcome, "%s/%s/%s", op->p->config->save_dir, op->p->config->job, op->what);
    }
    audit_result(op->p->audit, AUDIT_WRITE, op->what, &op->outcome);
    if (op->stage_fd >= 0) {
        close(op->stage_fd);
    }
    op->done(op->ctx, &op->outcome);
    persistent_unref(op->p);
    free(op);
}

/* Several agents make the same stage at the same time; each finds it or makes it. */
static tck_status_t make_stage(const struct persistent *p, struct version version, int *fd_out, struct error *err)
{
    char name[DIR_NAME_MAX];
    int parent_fd = -1;
    tck_status_t status = safe_fs_make_dir(p->job_fd, STAGE_DIR, &parent_fd, err);
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
    progress_begin(op->item.progress);
    op->outcome.code = persistent_open_to_publish(op->p, &op->outcome);
    if (op->outcome.code == TCK_OK) {
        op->outcome.code = audit_intent(op->p->audit, AUDIT_WRITE, op->what, &op->outcome);
    }
    if (op->outcome.code == TCK_OK) {
        op->outcome.code = make_stage(op->p, op->item.version, &op->stage_fd, &op->outcome);
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
    progress_begin(op->item.progress);
    tck_status_t status = metadata_take(&op->item, &metadata, &op->outcome);
    if (status == TCK_OK && put_is_given_up(op)) { /* then the slot may have had other content already */
        status = error_set(&op->outcome, TCK_ERR_CANCELED, METADATA_NAME ": was given up");
    }
    if (status == TCK_OK && metadata.bytes > 0) {
        status = metadata_write(op->stage_fd, &metadata, &op->outcome);
    }
    progress_end(op->item.progress);
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

static void put_written(void *ctx, const struct error *outcome)
{
    struct put *op = ctx;
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
        status = persistent_write_file(p, op->stage_fd, op->name, &op->item, put_written, op, &op->outcome);
    }
    if (status != TCK_OK) {
        put_finish(op);
    }
}

tck_status_t persistent_put(struct persistent *p, const struct tier_item *item, tier_done_fn *done, void *ctx,
                            struct error *err)
{
    char stage[DIR_NAME_MAX];
    if (p->uring == NULL || version_none(item->version) || item->image_bytes == 0) {
        return error_set(err, TCK_ERR_INVAL, "put: there is no event loop, no version or no data");
    }
    struct put *op = calloc(1, sizeof(*op));
    if (op == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a put");
    }
    *op = (struct put){.p = p, .item = *item, .done = done, .ctx = ctx, .stage_fd = -1};
    op->epoch = atomic_load(&p->epoch);
    manifest_file_name(item->shard, op->name);
    stage_dir_name(item->version, stage);
    snprintf(op->what, sizeof(op->what), STAGE_DIR "/%s/%s", stage, op->name);
    tck_status_t status = pool_submit(p->pool, put_prepare, put_prepared, op);
    if (status != TCK_OK) {
        error_set(err, status, "%s: start a put", op->what);
        free(op);
        return status;
    }
    persistent_ref(p);
    return TCK_OK;
}

/* ---- publish --------------------------------------------------------------------------------------------------- */

struct publish {
    struct persistent *p;
    struct publish_ask ask; /* its pointers are not valid after done */
    struct version version;
    uint32_t keep;
    tier_done_fn *done;
    void *ctx;
    struct error outcome;
};

static bool same_content(const struct manifest *a, const struct manifest *b)
{
    if (strcmp(a->job, b->job) != 0 || !version_is(a->version, b->version) || a->file_count != b->file_count ||
        !hash128_is(a->layout, b->layout)) {
        return false;
    }
    for (uint32_t i = 0; i < a->file_count; i++) {
        const struct manifest_file *x = &a->files[i], *y = &b->files[i];
        if (!hash128_is(x->shard, y->shard) || x->bytes != y->bytes || !hash128_is(x->root, y->root)) {
            return false;
        }
    }
    return true;
}

/* A retry of a publish whose answer was lost finds the version published. TCK_ERR_NOENT: the name is free. TCK_OK: it
 * is the same version, and durable. */
static tck_status_t find_published(const struct persistent *p, const struct manifest *manifest, struct error *err)
{
    struct version_dirs dirs = persistent_dirs(p);
    struct published which = {.version = manifest->version};
    struct version_look look;
    version_look(&dirs, &which, &look);
    struct error why = look.why;
    bool gone = look.gone, unread = look.standing == STANDING_UNREADABLE;
    bool same = look.standing == STANDING_GOOD && same_content(manifest, &look.manifest);
    version_look_free(&look);
    if (gone) {
        return TCK_ERR_NOENT;
    }
    if (unread) {
        return error_set(err, why.code, "cannot be compared with the existing one: %s", why.text);
    }
    if (!same) {
        return error_set(err, TCK_ERR_EXIST, "exists already with different content%s%s", why.text[0] ? ": " : "",
                         why.text);
    }
    return safe_fs_sync(p->job_fd, err);
}

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

/* Parses its own output first: a manifest that this build cannot read must not be published. */
static tck_status_t write_manifest(int stage_fd, const struct manifest *manifest, struct error *err)
{
    struct manifest again;
    char *text;
    size_t len;
    tck_status_t status = manifest_print(manifest, &text, &len, err);
    if (status != TCK_OK) {
        return status;
    }
    status = manifest_parse(text, len, &again, err);
    if (status == TCK_OK) {
        manifest_free(&again);
        status = safe_fs_write(stage_fd, MANIFEST_NAME, text, len, err);
    }
    free(text);
    return status;
}

static tck_status_t complete_stage(int parent_fd, const char *stage, const struct manifest *manifest, struct error *err)
{
    struct manifest whole = *manifest;
    int stage_fd = -1;
    tck_status_t status = safe_fs_open_dir(parent_fd, stage, &stage_fd, err);
    if (status != TCK_OK) {
        return status;
    }
    status = version_check_files(stage_fd, manifest, err);
    if (status == TCK_OK) {
        status = remove_parts(stage_fd, err);
    }
    if (status == TCK_OK) {
        failpoint(publish, checked);
        status = metadata_describe(stage_fd, &whole.metadata, err);
    }
    if (status == TCK_OK) {
        status = write_manifest(stage_fd, &whole, err);
        free(whole.metadata.crcs);
    }
    failpoint(publish, complete);
    close(stage_fd);
    return status;
}

static tck_status_t check_not_superseded(struct persistent *p, const struct publish_ask *ask, struct error *err)
{
    uint64_t newest;
    tck_status_t status = persistent_newest_term(p, &newest, err);
    if (status != TCK_OK || newest <= ask->term) {
        return status;
    }
    if (ask->newer_term != NULL) {
        *ask->newer_term = newest;
    }
    return error_set(err, TCK_ERR_DENIED, "term %" PRIu64 " is over: term %" PRIu64 " was claimed", ask->term, newest);
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
    outcome.code = safe_fs_move_dir(parent_fd, stage, p->job_fd, name, &outcome);
    failpoint(publish, moved);
    if (outcome.code == TCK_OK) {
        outcome.code = safe_fs_sync(p->job_fd, &outcome);
    }
    if (outcome.code == TCK_OK) {
        outcome.code = safe_fs_sync(parent_fd, &outcome);
    }
    failpoint(publish, synced);
    audit_result(p->audit, AUDIT_PUBLISH, name, &outcome);
    return outcome.code == TCK_OK ? TCK_OK : error_set(err, outcome.code, "%s", outcome.text);
}

static tck_status_t publish_stage(struct persistent *p, const struct publish_ask *ask, const char *name,
                                  struct error *err)
{
    const struct manifest *manifest = ask->manifest;
    char stage[DIR_NAME_MAX];
    int parent_fd = -1;
    tck_status_t status = safe_fs_open_dir(p->job_fd, STAGE_DIR, &parent_fd, err);
    if (status != TCK_OK) {
        return status;
    }
    stage_dir_name(manifest->version, stage);
    status = complete_stage(parent_fd, stage, manifest, err);
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
    if (version_latest(p->job_fd, &named, &ignored) != TCK_OK || version_cmp(named, version) <= 0) {
        return false;
    }
    version_dir_name(named, name);
    tck_status_t status = safe_fs_open_dir(p->job_fd, name, &fd, &ignored);
    if (status == TCK_OK) {
        close(fd);
    }
    return status != TCK_ERR_NOENT;
}

/* Called before the publish is reported to the trainers: if the next start gets an out-of-date listing, it finds the
 * version by this name. The version is already published, so a failure is only logged. */
static void write_latest(const struct persistent *p, struct version version)
{
    struct error err;
    char line[DIR_NAME_MAX + 1], name[DIR_NAME_MAX];
    version_dir_name(version, name);
    int len = snprintf(line, sizeof(line), "%s\n", name);
    if (!names_a_newer(p, version) && safe_fs_write(p->job_fd, LATEST_NAME, line, (size_t)len, &err) != TCK_OK) {
        log_warn(LATEST_NAME " cannot be updated: %s", err.text);
    }
}

static void publish_or_find(struct publish *op, struct error *err)
{
    const struct manifest *manifest = op->ask.manifest;
    char name[DIR_NAME_MAX];
    version_dir_name(manifest->version, name);
    tck_status_t status = persistent_open_to_publish(op->p, err);
    if (status == TCK_OK) {
        status = find_published(op->p, manifest, err);
    }
    if (status == TCK_ERR_NOENT) {
        status = publish_stage(op->p, &op->ask, name, err);
    }
    if (status != TCK_OK) {
        error_prefix(err, "publish %s/%s/%s", op->p->config->save_dir, op->p->config->job, name);
        return;
    }
    write_latest(op->p, manifest->version);
    failpoint(publish, done);
    *err = (struct error){.code = TCK_OK};
}

static void publish_work(void *ctx)
{
    struct publish *op = ctx;
    progress_begin(op->ask.progress);
    publish_or_find(op, &op->outcome);
    progress_end(op->ask.progress);
}

/* None of this can undo the publish, so failures are only logged. */
static void tidy_work(void *ctx)
{
    struct publish *op = ctx;
    struct persistent *p = op->p;
    struct error err = {0};
    failpoint(publish, tidying);
    if (prune_superseded(p, op->version, op->keep, &err) != TCK_OK) {
        log_warn("older versions cannot be removed: %s", err.text);
    }
}

static void publish_free(struct publish *op)
{
    persistent_unref(op->p);
    free(op);
}

static void tidy_done(void *ctx, bool canceled);

/* Takes ownership of op. Runs one at a time: a publish that ends meanwhile is tidied up after this one. */
static void tidy_start(struct publish *op)
{
    struct persistent *p = op->p;
    if (p->closing || p->tidying) {
        p->tidy_next = p->closing ? VERSION_NONE : op->version;
        publish_free(op);
        return;
    }
    op->keep = p->config->max_ckpt_num;
    p->tidying = pool_submit(p->pool, tidy_work, tidy_done, op) == TCK_OK;
    if (!p->tidying) {
        publish_free(op); /* the next publish does it */
    }
}

static void tidy_done(void *ctx, bool canceled)
{
    struct publish *op = ctx;
    struct persistent *p = op->p;
    op->version = p->tidy_next;
    p->tidy_next = VERSION_NONE;
    p->tidying = false;
    if (canceled || version_none(op->version)) {
        publish_free(op);
    } else {
        tidy_start(op);
    }
}

/* The caller is notified before the older versions are deleted, which may take long. */
static void publish_done(void *ctx, bool canceled)
{
    struct publish *op = ctx;
    persistent_moved(op->p);
    if (canceled) {
        error_set(&op->outcome, TCK_ERR_CANCELED, "publish: the persistent tier is closing");
    }
    op->done(op->ctx, &op->outcome);
    if (op->outcome.code == TCK_OK) {
        tidy_start(op);
    } else {
        publish_free(op);
    }
}

tck_status_t persistent_publish(struct persistent *p, const struct publish_ask *ask, tier_done_fn *done, void *ctx,
                                struct error *err)
{
    const struct manifest *manifest = ask->manifest;
    if (p->pool == NULL || strcmp(manifest->job, p->config->job) != 0) {
        return error_set(err, TCK_ERR_INVAL, "publish: there is no pool, or the manifest is of job %s", manifest->job);
    }
    struct publish *op = calloc(1, sizeof(*op));
    if (op == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a publish");
    }
    *op = (struct publish){
        .p = p, .ask = *ask, .version = manifest->version, .keep = p->config->max_ckpt_num, .done = done, .ctx = ctx};
    tck_status_t status = pool_submit(p->pool, publish_work, publish_done, op);
    if (status != TCK_OK) {
        free(op);
        return error_set(err, status, "start a publish");
    }
    persistent_ref(p);
    return TCK_OK;
}
