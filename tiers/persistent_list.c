/* SPDX-License-Identifier: Apache-2.0
 * Which versions are published: a directory with the right name is only a candidate; its manifest and the sizes of its
 * files decide. */
#include "tiers/persistent_impl.h"

#include "base/log.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MANIFEST_MAX_BYTES JSON_MAX_BYTES

/* ---- one version ----------------------------------------------------------------------------------------------- */

tck_status_t version_open(const struct persistent *p, const struct published *which, int *fd_out, struct error *err)
{
    char name[DIR_NAME_MAX];
    int parent_fd = which->from_load_dir ? p->load_fd : p->job_fd;
    version_dir_name(which->version, name);
    if (parent_fd < 0) {
        return error_set(err, TCK_ERR_NOENT, "%s: there is no load_dir", name);
    }
    return beneath_open_dir(parent_fd, name, fd_out, err);
}

static tck_status_t check_owner(const struct persistent *p, struct version version, const struct manifest *manifest,
                                struct error *err)
{
    if (strcmp(manifest->job, p->config->job) != 0) {
        return error_set(err, TCK_ERR_DENIED, MANIFEST_NAME " is of job %s, not of %s", manifest->job, p->config->job);
    }
    if (!version_is(manifest->version, version)) {
        return error_set(err, TCK_ERR_CORRUPT,
                         MANIFEST_NAME " is of term %" PRIu64 " step %" PRIu64 ", not of its name",
                         manifest->version.term, manifest->version.step);
    }
    return TCK_OK;
}

tck_status_t version_manifest(const struct persistent *p, int dir_fd, struct version version, struct manifest *out,
                              struct error *err)
{
    char *text;
    size_t len;
    struct manifest manifest;
    tck_status_t status = beneath_read(dir_fd, MANIFEST_NAME, MANIFEST_MAX_BYTES, &text, &len, err);
    if (status != TCK_OK) {
        return status;
    }
    status = manifest_parse(text, len, &manifest, err);
    free(text);
    if (status != TCK_OK) {
        return status;
    }
    status = check_owner(p, version, &manifest, err);
    if (status != TCK_OK) {
        manifest_free(&manifest);
        return status;
    }
    *out = manifest;
    return TCK_OK;
}

tck_status_t persistent_manifest(struct persistent *p, const struct published *which, struct manifest *out,
                                 struct error *err)
{
    char name[DIR_NAME_MAX];
    int dir_fd = -1;
    tck_status_t status = version_open(p, which, &dir_fd, err);
    if (status != TCK_OK) {
        return status;
    }
    status = version_manifest(p, dir_fd, which->version, out, err);
    close(dir_fd);
    if (status != TCK_OK) {
        version_dir_name(which->version, name);
        error_prefix(err, "%s", name);
    }
    return status;
}

/* ---- all versions ---------------------------------------------------------------------------------------------- */

static tck_status_t check_version(const struct persistent *p, const struct published *which, struct error *err)
{
    struct manifest manifest;
    int dir_fd = -1;
    tck_status_t status = version_open(p, which, &dir_fd, err);
    if (status != TCK_OK) {
        return status;
    }
    status = version_manifest(p, dir_fd, which->version, &manifest, err);
    if (status == TCK_OK) {
        status = version_check_files(dir_fd, &manifest, err);
        manifest_free(&manifest);
    }
    close(dir_fd);
    return status;
}

static tck_status_t append(struct published **versions, size_t *count, struct published which, struct error *err)
{
    struct published *grown = reallocarray(*versions, *count + 1, sizeof(*grown));
    if (grown == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the list of versions");
    }
    grown[(*count)++] = which;
    *versions = grown;
    return TCK_OK;
}

tck_status_t list_versions(const struct persistent *p, int dir_fd, bool from_load_dir, struct published **out,
                           size_t *count, struct error *err)
{
    struct names names;
    tck_status_t status = beneath_list(dir_fd, &names, err);
    if (status != TCK_OK) {
        return status;
    }
    for (size_t i = 0; i < names.count && status == TCK_OK; i++) {
        struct published which = {.from_load_dir = from_load_dir};
        struct error why = {0};
        if (!version_dir_parse(names.names[i], &which.version)) {
            continue;
        }
        if (check_version(p, &which, &why) == TCK_OK) {
            status = append(out, count, which, err);
        } else {
            log_warn("%s/%s/%s is no version: %s", from_load_dir ? p->config->load_dir : p->config->save_dir,
                     p->config->job, names.names[i], why.text);
        }
    }
    names_free(&names);
    return status;
}

/* Newest first; of two with the same version the one in save_dir first. */
static int compare_published(const void *a, const void *b)
{
    const struct published *x = a, *y = b;
    int order = version_cmp(y->version, x->version);
    return order != 0 ? order : (int)x->from_load_dir - (int)y->from_load_dir;
}

static size_t drop_doubles(struct published *versions, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || !version_is(versions[kept - 1].version, versions[i].version)) {
            versions[kept++] = versions[i];
        }
    }
    return kept;
}

tck_status_t persistent_list(struct persistent *p, struct published **out, size_t *count_out, struct error *err)
{
    struct published *versions = NULL;
    size_t count = 0;
    tck_status_t status = list_versions(p, p->job_fd, false, &versions, &count, err);
    if (status == TCK_OK && p->load_fd >= 0) {
        status = list_versions(p, p->load_fd, true, &versions, &count, err);
    }
    if (status != TCK_OK) {
        free(versions);
        error_prefix(err, "list the published versions");
        return status;
    }
    if (count > 0) {
        qsort(versions, count, sizeof(*versions), compare_published);
    }
    *out = versions;
    *count_out = drop_doubles(versions, count);
    return TCK_OK;
}

/* ---- what only looks like a version ------------------------------------------------------------------------------ */

tck_status_t persistent_list_invalid(struct persistent *p, void (*found)(void *ctx, const char *why), void *ctx,
                                     struct error *err)
{
    struct names names;
    tck_status_t status = beneath_list(p->job_fd, &names, err);
    if (status != TCK_OK) {
        return status;
    }
    for (size_t i = 0; i < names.count; i++) {
        struct published which = {0};
        struct error why = {0};
        if (version_dir_parse(names.names[i], &which.version) && check_version(p, &which, &why) != TCK_OK) {
            error_prefix(&why, "%s", names.names[i]);
            found(ctx, why.text);
        }
    }
    names_free(&names);
    return TCK_OK;
}
