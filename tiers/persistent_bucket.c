/* SPDX-License-Identifier: Apache-2.0
 * Opening a store of objects for the persistent tier: our marker, the job's secret, and whether the server can decide
 * between two writers. */
#include "tiers/job_marker.h"
#include "tiers/object/object_probe.h"
#include "tiers/persistent_dir.h"
#include "tiers/persistent_objects.h"

#include "base/log.h"
#include <stdlib.h>
#include <string.h>

#define SECRET_NAME "secret"

/* ---- folders --------------------------------------------------------------------------------------------------- */

static void came_further(void *ctx)
{
    persistent_moved(ctx);
    persistent_came_further(ctx);
}

/* Shorter than the time after which storage counts as hanging, so that the error names the cause. */
static uint32_t patience_ms(const struct persistent *p)
{
    return p->config->storage_timeout_ms / 4 * 3;
}

static tck_status_t open_folder(struct persistent *p, struct object_store *store, uint32_t quiet_ms, struct folder *out,
                                struct error *err)
{
    struct object_folder *job = NULL;
    const struct object_root root = {
        .store = store, .moved = came_further, .moved_ctx = p, .quiet_ms = quiet_ms, .read_quiet_ms = patience_ms(p)};
    tck_status_t status = object_folder_new(&root, p->config->job, &job, err);
    if (status == TCK_OK) {
        *out = folder_of_objects(job);
    }
    return status;
}

static tck_status_t open_job(struct persistent *p, struct object_store *store, struct folder *out, struct error *err)
{
    return open_folder(p, store, patience_ms(p), out, err);
}

/* ---- the probe ------------------------------------------------------------------------------------------------- */

static tck_status_t probe(struct persistent *p, struct error *err)
{
    struct object_traits traits = {.honours_conditions = false};
    char name[OBJECT_KEY_MAX];
    const struct object_folder *job = p->job.objects;
    tck_status_t status = object_folder_key(job, PROBE_NAME, name, err);
    if (status == TCK_OK) {
        status = object_probe(object_folder_store(job), object_folder_call(job), name, &traits, err);
    }
    if (status != TCK_OK) {
        return error_prefix(err, "find out what the server can do");
    }
    p->unconditional = !traits.honours_conditions;
    p->unchecked = !traits.checks_checksums;
    if (p->unconditional && p->terms == p) { /* an archive decides nothing */
        log_warn(
            "%s: the server ignores the condition \"only if absent\" (If-None-Match), so two starts of a job could "
            "both get it: only a job of one node may use this server",
            p->config->save_dir);
    }
    return TCK_OK;
}

tck_status_t persistent_may_be_shared(const struct persistent *p, struct error *err)
{
    return p->unconditional
               ? error_set(err, TCK_ERR_UNSUPPORTED,
                           "the server of save_dir %s ignores the condition \"only if absent\" (If-None-Match) on "
                           "writes, so it cannot decide between two starts of a job of several nodes: use a server "
                           "that knows it, or a directory",
                           p->config->save_dir)
               : TCK_OK;
}

/* Which place and job an error is about. */
static tck_status_t name_job(const struct persistent *p, struct error *err)
{
    const char *dir = p->config->save_dir;
    bool named = strstr(err->text, dir) != NULL; /* by the request that has failed */
    return error_prefix(err, "%s%s%s, job %s", persistent_key(p), named ? "" : " ", named ? "" : dir, p->config->job);
}

/* ---- open ------------------------------------------------------------------------------------------------------ */

tck_status_t objects_open(struct persistent *p, struct object_store *store, struct error *err)
{
    tck_status_t status = open_job(p, store, &p->job, err);
    if (status != TCK_OK) {
        return status;
    }
    if (atomic_load(&p->claim_seen) == 0) {
        status = marker_find_or_make(p, err);
    } else {
        status = marker_check(p, &p->job, err);
        status = status == TCK_OK ? marker_check_claim(p, &p->job, err) : status;
    }
    if (status == TCK_OK) { /* in a command without a loop, too: it may claim a term */
        status = probe(p, err);
    }
    return status == TCK_OK ? TCK_OK : name_job(p, err);
}

/* Leaves the job's folder closed if the store has nothing of the job. */
tck_status_t objects_find(struct persistent *p, struct object_store *store, struct error *err)
{
    struct names names;
    tck_status_t status = open_job(p, store, &p->job, err);
    if (status == TCK_OK) {
        status = folder_list(&p->job, &names, err);
    }
    if (status == TCK_OK) {
        bool empty = names.count == 0;
        names_free(&names);
        if (empty) {
            folder_close(&p->job);
            return TCK_OK;
        }
        status = marker_find(p, err);
    }
    return status == TCK_OK ? TCK_OK : name_job(p, err);
}

tck_status_t objects_open_load(struct persistent *p, struct object_store *store, struct error *err)
{
    struct names names;
    tck_status_t status = open_job(p, store, &p->second, err);
    if (status == TCK_OK) {
        status = folder_list(&p->second, &names, err);
    }
    if (status != TCK_OK) {
        return name_place(err, "load_dir", p->config->load_dir);
    }
    if (names.count == 0) {
        log_warn("load_dir %s has nothing of job %s: nothing to load from there", p->config->load_dir, p->config->job);
        folder_close(&p->second);
    }
    names_free(&names);
    return TCK_OK;
}

/* Sends no request to the server yet, since it may be down. Starts that do not need it wait for its list and manifests
 * all the same, so not for long. */
tck_status_t objects_open_archive(struct persistent *p, struct object_store *store, struct error *err)
{
    return open_folder(p, store, p->config->storage_timeout_ms / 4, &p->second, err);
}

/* Keys do not become stale, but a directory as load_dir may. */
tck_status_t objects_open_again(struct persistent *p, struct error *err)
{
    return dir_open_load_again(p, err);
}

/* ---- secret ---------------------------------------------------------------------------------------------------- */

static tck_status_t secret_read(struct persistent *p, struct secret *out, struct error *err)
{
    char *text = NULL;
    size_t len = 0;
    tck_status_t status = folder_read(&p->job, SECRET_NAME, SECRET_LINE_BYTES + 1, &text, &len, err);
    if (status == TCK_OK) {
        status = secret_of_line(text, len, SECRET_NAME, out, err);
        secret_wipe_line(text, len);
        free(text);
    }
    return status;
}

/* Who may read the bucket may have it; it is the bucket's policy that keeps others out. */
tck_status_t objects_secret(struct persistent *p, struct secret *out, struct error *err)
{
    char line[SECRET_LINE_BYTES + 1];
    tck_status_t status = secret_read(p, out, err);
    if (status != TCK_ERR_NOENT) {
        return status;
    }
    status = secret_new_line(line, err);
    if (status == TCK_OK) {
        status = folder_create(&p->job, SECRET_NAME, line, SECRET_LINE_BYTES, err);
        secret_wipe_line(line, sizeof(line));
    }
    return status == TCK_OK || status == TCK_ERR_EXIST ? secret_read(p, out, err) : status;
}
