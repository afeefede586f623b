/* SPDX-License-Identifier: Apache-2.0
 * Publishing in a store of objects: the files are in their place already, and the manifest, created only if absent,
 * makes them a version. */
#include "tiers/persistent_objects.h"

#include "base/failpoint.h"
#include "base/log.h"
#include <stdlib.h>
#include <string.h>

static tck_status_t check_files(struct persistent *p, const char *name, const struct manifest *manifest,
                                struct error *err)
{
    struct folder dir;
    tck_status_t status = folder_open(
        &p->job, name, &dir, err); /* again, for the sizes of its files come from the listing that is made here */
    if (status == TCK_OK) {
        status = version_check_files(&dir, manifest, err);
        folder_close(&dir);
    }
    return status;
}

/* A start that has claimed a newer term since it was last looked for deletes what is not published, and may have begun
 * that before the manifest was there. Then this version must not stay: it would be found damaged. Only a listing that
 * lacks a file proves that; after any other error it stays. */
static tck_status_t check_still_whole(struct persistent *p, const char *name, const struct folder *dir,
                                      const struct manifest *manifest, struct error *err)
{
    struct error why;
    tck_status_t status = check_files(p, name, manifest, err);
    if (!status_proves_damage(status)) {
        if (status != TCK_OK) {
            log_warn("%s/%s/%s is published, and its files cannot be listed once more: %s", p->config->save_dir,
                     p->config->job, name, err->text);
        }
        return TCK_OK;
    }
    if (folder_remove(dir, MANIFEST_NAME, &why) != TCK_OK) {
        log_warn("%s/%s/%s stays published: %s", p->config->save_dir, p->config->job, name, why.text);
    }
    return error_set(err, TCK_ERR_DENIED, "its files were deleted while it was published: another term has begun");
}

static tck_status_t create_manifest(struct persistent *p, const struct publish_ask *ask, const char *name,
                                    const struct folder *dir, const struct manifest *manifest, struct error *err)
{
    char *text = NULL;
    size_t len = 0;
    struct error outcome = {0};
    tck_status_t status = print_manifest(manifest, &text, &len, err);
    if (status == TCK_OK) {
        status = audit_intent(p->audit, AUDIT_PUBLISH, name, err);
    }
    if (status == TCK_OK) {
        failpoint(object, publishing);
        outcome.code = folder_create(dir, MANIFEST_NAME, text, len, &outcome);
        if (outcome.code == TCK_OK) {
            failpoint(object, published);
            outcome.code = check_still_whole(p, name, dir, manifest, &outcome);
        }
        if (outcome.code == TCK_OK) { /* a sweep that began before may still delete it */
            outcome.code = check_not_superseded(p, ask, &outcome);
        }
        audit_result(p->audit, AUDIT_PUBLISH, name, &outcome);
        status = outcome.code == TCK_OK ? TCK_OK : error_set(err, outcome.code, "%s", outcome.text);
    }
    free(text);
    return status;
}

/* Before versions_lock is taken, which a sweep of the next term waits for, since it may take long. In a folder of its
 * own: one that has been listed does not know of objects that are put later. */
static tck_status_t make_index(struct persistent *p, const struct publish_ask *ask, const char *name,
                               struct manifest_file *out, struct error *err)
{
    struct folder dir;
    tck_status_t status = folder_open(&p->job, name, &dir, err);
    if (status == TCK_OK) {
        status = index_make(p, ask, &dir, out, err);
        folder_close(&dir);
    }
    return status;
}

tck_status_t objects_publish(struct persistent *p, const struct publish_ask *ask, const char *name, struct error *err)
{
    struct manifest whole = *ask->manifest;
    struct folder dir;
    whole.metadata = whole.index = (struct manifest_file){0};
    tck_status_t status = make_index(p, ask, name, &whole.index, err);
    if (status == TCK_OK) {
        status = folder_open(&p->job, name, &dir, err);
    }
    if (status != TCK_OK) {
        free(whole.index.crcs);
        return status;
    }
    pthread_mutex_lock(&p->versions_lock);
    status = version_check_files(&dir, ask->manifest, err);
    if (status == TCK_OK) {
        status = beside_describe(&dir, METADATA_NAME, &whole.metadata, err);
    }
    if (status == TCK_OK) {
        status = check_not_given_up(ask, err);
    }
    if (status == TCK_OK) {
        status = check_not_superseded(p, ask, err);
    }
    if (status == TCK_OK) {
        status = create_manifest(p, ask, name, &dir, &whole, err);
    }
    pthread_mutex_unlock(&p->versions_lock);
    free(whole.metadata.crcs);
    free(whole.index.crcs);
    folder_close(&dir);
    return status;
}

/* Listings are never out of date, so no file has to name the newest version. */
void objects_published(const struct persistent *p, struct version version)
{
    (void)p;
    (void)version;
}
