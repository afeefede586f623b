/* SPDX-License-Identifier: Apache-2.0
 * Deleting from a store of objects: the manifest first, so that what is left after an interruption is no version, and
 * is swept by a later term. Only objects with our names are deleted, and none if there is another one beside them. */
#include "tiers/persistent_objects.h"

#include "base/failpoint.h"
#include "base/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one folder ------------------------------------------------------------------------------------------------ */

static bool is_ours(const struct manifest *manifest, const char *name)
{
    return manifest != NULL ? manifest_has_name(manifest, name) : manifest_is_name_in_version(name);
}

/* Fails if there is a foreign object: one that the manifest does not name, or, where there is none (NULL), that has no
 * name of ours. The caller frees the names. */
static tck_status_t list_ours(const struct folder *dir, const struct manifest *manifest, struct names *out,
                              struct error *err)
{
    tck_status_t status = folder_list(dir, out, err);
    for (size_t i = 0; status == TCK_OK && i < out->count; i++) {
        if (!is_ours(manifest, out->names[i])) {
            status = error_set(err, TCK_ERR_DENIED, "contains %s, which Tierckpt did not create", out->names[i]);
            names_free(out);
        }
    }
    return status;
}

/* The manifest once more at the end: a coordinator whose term is over may have created it after it was deleted. */
static tck_status_t remove_names(const struct persistent *p, const struct folder *dir, const struct names *names,
                                 struct error *err)
{
    tck_status_t status = folder_remove(dir, MANIFEST_NAME, err);
    failpoint(object, unpublished);
    for (size_t i = 0; i < names->count && status == TCK_OK; i++) {
        status = strcmp(names->names[i], MANIFEST_NAME) == 0 ? TCK_OK : folder_remove(dir, names->names[i], err);
        persistent_came_further(p);
    }
    return status == TCK_OK ? folder_remove(dir, MANIFEST_NAME, err) : status;
}

static tck_status_t delete_names(const struct persistent *p, const char *name, const struct folder *dir,
                                 const struct names *names, struct error *err)
{
    struct error outcome = {0};
    tck_status_t status = audit_intent(p->audit, AUDIT_DELETE, name, err);
    if (status != TCK_OK) {
        return status;
    }
    outcome.code = remove_names(p, dir, names, &outcome);
    audit_result(p->audit, AUDIT_DELETE, name, &outcome);
    return outcome.code == TCK_OK ? TCK_OK : error_set(err, outcome.code, "delete %s: %s", name, outcome.text);
}

tck_status_t objects_delete_version(const struct persistent *p, struct version version, struct error *err)
{
    char name[DIR_NAME_MAX];
    struct folder dir;
    struct names names;
    struct manifest manifest;
    version_dir_name(version, name);
    tck_status_t status = folder_open(&p->job, name, &dir, err);
    if (status != TCK_OK) {
        return status;
    }
    status = version_manifest(&dir, p->config->job, version, &manifest, err);
    if (status == TCK_OK) {
        status = list_ours(&dir, &manifest, &names, err);
        manifest_free(&manifest);
    }
    if (status == TCK_OK) {
        status = delete_names(p, name, &dir, &names, err);
        names_free(&names);
    }
    folder_close(&dir);
    return status;
}

/* ---- sweeping -------------------------------------------------------------------------------------------------- */

static bool is_swept(const char *name, uint64_t term, struct version keep)
{
    struct version version;
    return version_dir_parse(name, &version) && version.term <= term && !version_is(version, keep);
}

/* Whether the listing shows something to sweep: objects without a manifest, or a manifest without any object that it
 * names, which a request to publish has left that arrived after an earlier sweep. */
static bool is_remainder(const struct names *names)
{
    size_t beside = (size_t)names_have(names, METADATA_NAME) + names_have(names, VERSION_INDEX_NAME);
    bool alone = names->count == 1 + beside;
    return names->count > 0 && (!names_have(names, MANIFEST_NAME) || alone);
}

/* Deletes what was put for a version that was never published, or that is published no longer. One listing decides, so
 * that a version that is published meanwhile is seen as a whole or not at all. */
static tck_status_t sweep_version(const struct persistent *p, const char *name, struct error *err)
{
    struct folder dir;
    struct names names = {0};
    tck_status_t status = folder_open(&p->job, name, &dir, err);
    if (status != TCK_OK) {
        return status;
    }
    status = list_ours(&dir, NULL, &names, err);
    if (status == TCK_OK) {
        if (is_remainder(&names)) {
            status = delete_names(p, name, &dir, &names, err);
        }
        names_free(&names);
    }
    folder_close(&dir);
    return status;
}

static tck_status_t sweep_versions(struct persistent *p, uint64_t term, struct version keep, struct error *err)
{
    struct names names;
    struct error why;
    tck_status_t status = folder_list(&p->job, &names, err);
    if (status != TCK_OK) {
        return status;
    }
    for (size_t i = 0; i < names.count; i++) {
        if (!is_swept(names.names[i], term, keep)) {
            continue;
        }
        pthread_mutex_lock(&p->versions_lock); /* this term may be publishing one of an older term that it restored */
        status = sweep_version(p, names.names[i], &why);
        pthread_mutex_unlock(&p->versions_lock);
        if (status != TCK_OK) {
            log_warn("%s/%s/%s: what was not published cannot be removed: %s", p->config->save_dir, p->config->job,
                     names.names[i], why.text);
        }
    }
    names_free(&names);
    return TCK_OK;
}

/* The key is <job>/<version>/<file>. */
static bool is_our_upload(const char *key, const char *prefix, uint64_t term, struct version keep)
{
    char version[DIR_NAME_MAX];
    size_t head = strlen(prefix);
    const char *slash = strncmp(key, prefix, head) == 0 ? strchr(key + head, '/') : NULL;
    if (slash == NULL || (size_t)(slash - (key + head)) >= sizeof(version)) {
        return false;
    }
    snprintf(version, sizeof(version), "%.*s", (int)(slash - (key + head)), key + head);
    return manifest_is_name_in_version(slash + 1) && is_swept(version, term, keep);
}

/* Uploads that will never be finished cost as much as objects, and no listing shows them. */
static tck_status_t sweep_uploads(const struct persistent *p, uint64_t term, struct version keep, struct error *err)
{
    char prefix[CONFIG_NAME + 1];
    struct object_store *store = object_folder_store(p->job.objects);
    const struct object_call *call = object_folder_call(p->job.objects);
    struct object_upload *uploads = NULL;
    size_t count = 0;
    snprintf(prefix, sizeof(prefix), "%s/", p->config->job);
    tck_status_t status = store->ops->uploads(store, call, prefix, &uploads, &count, err);
    if (status != TCK_OK) {
        return error_prefix(err, "list the uploads that were not finished");
    }
    for (size_t i = 0; i < count; i++) {
        struct error why;
        if (!is_our_upload(uploads[i].key, prefix, term, keep)) {
            free(uploads[i].id);
        } else if (store->ops->upload_abort(store, call, &uploads[i], &why) != TCK_OK) {
            log_warn("%s: an unfinished upload stays: %s", p->config->save_dir, why.text);
        }
    }
    free(uploads);
    return TCK_OK;
}

/* Uploads first: one that is finished during the sweep would leave an object behind. */
tck_status_t objects_sweep(struct persistent *p, uint64_t term, struct version keep, struct error *err)
{
    tck_status_t status = sweep_uploads(p, term, keep, err);
    return status == TCK_OK ? sweep_versions(p, term, keep, err) : status;
}
