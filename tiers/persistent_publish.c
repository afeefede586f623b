/* SPDX-License-Identifier: Apache-2.0
 * Publishing a version: at most once, whatever is repeated, and only while its coordinator's term is not over. What
 * follows a publish is the deletion of what it supersedes. */
#include "tiers/persistent_impl.h"

#include "base/failpoint.h"
#include "base/log.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
    return folder_sync(&p->job, err);
}

tck_status_t check_not_superseded(struct persistent *p, const struct publish_ask *ask, struct error *err)
{
    uint64_t newest;
    tck_status_t status = persistent_newest_term(p->terms, &newest, err);
    if (status != TCK_OK || newest <= ask->term) {
        return status;
    }
    if (ask->newer_term != NULL) {
        *ask->newer_term = newest;
    }
    return error_set(err, TCK_ERR_DENIED, "term %" PRIu64 " is over: term %" PRIu64 " was claimed", ask->term, newest);
}

tck_status_t check_not_given_up(const struct publish_ask *ask, struct error *err)
{
    return ask->given_up == NULL || !atomic_load(ask->given_up)
               ? TCK_OK
               : error_set(err, TCK_ERR_CANCELED, "the publish was given up");
}

tck_status_t print_manifest(const struct manifest *manifest, char **text_out, size_t *len_out, struct error *err)
{
    struct manifest again;
    char *text;
    size_t len;
    tck_status_t status = manifest_print(manifest, &text, &len, err);
    if (status != TCK_OK) {
        return status;
    }
    status = manifest_parse(text, len, &again, err);
    if (status != TCK_OK) {
        free(text);
        return status;
    }
    manifest_free(&again);
    *text_out = text;
    *len_out = len;
    return TCK_OK;
}

static tck_status_t publish_or_find(struct persistent *p, const struct publish_ask *ask, struct error *err)
{
    const struct manifest *manifest = ask->manifest;
    char name[DIR_NAME_MAX];
    version_dir_name(manifest->version, name);
    tck_status_t status = p->ops->open_to_publish(p, err);
    if (status == TCK_OK) {
        status = find_published(p, manifest, err);
    }
    if (status == TCK_ERR_NOENT) {
        status = p->ops->publish(p, ask, name, err);
        if (status == TCK_ERR_EXIST && p->job.objects != NULL) { /* published meanwhile, perhaps by a lost attempt */
            status = find_published(p, manifest, err);
        }
    }
    if (status != TCK_OK) {
        /* What comes from a bucket names its URL already. */
        return p->job.objects != NULL
                   ? error_prefix(err, "publish %s", name)
                   : error_prefix(err, "publish %s/%s/%s", p->config->save_dir, p->config->job, name);
    }
    p->ops->published(p, manifest->version);
    failpoint(publish, done);
    return TCK_OK;
}

static void publish_work(void *ctx)
{
    struct publish *op = ctx;
    progress_begin(op->ask.progress);
    op->outcome.code = publish_or_find(op->p, &op->ask, &op->outcome);
    progress_end(op->ask.progress);
}

/* None of this can undo the publish, so failures are only logged. */
static void tidy(struct persistent *p, struct version version, uint32_t keep)
{
    struct error err = {0};
    failpoint(publish, tidying);
    if (prune_superseded(p, version, keep, &err) != TCK_OK) {
        log_warn("older versions cannot be removed: %s", err.text);
    }
}

tck_status_t persistent_publish_now(struct persistent *p, const struct publish_ask *ask, struct error *err)
{
    tck_status_t status = publish_or_find(p, ask, err);
    if (status == TCK_OK) {
        tidy(p, ask->manifest->version, p->config->max_ckpt_num);
    }
    return status;
}

static void tidy_work(void *ctx)
{
    const struct publish *op = ctx;
    tidy(op->p, op->version, op->keep);
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
