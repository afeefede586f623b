/* SPDX-License-Identifier: Apache-2.0
 * Copies of published versions in archive_dir. */
#include "tiers/archive.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/path.h"
#include "tiers/archive_note.h"
#include "tiers/forgotten.h"
#include "tiers/persistent_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct archive {
    struct config config; /* of the tier `to`: its save_dir is archive_dir */
    struct persistent *from, *to;
    pthread_mutex_t lock; /* held while it is opened or closed */
    uint32_t users;       /* calls that use `to`; guarded by the lock, as is */
    bool failed;          /* one of them, so that it is opened again when none is left */
    atomic_bool canceled;
    struct object_store *store;
    _Atomic uint64_t moved_ms;
};

static void moved(void *ctx)
{
    struct archive *archive = ctx;
    atomic_store(&archive->moved_ms, clock_ms());
}

uint64_t archive_moved_ms(const struct archive *archive)
{
    return atomic_load(&archive->moved_ms);
}

/* A store of objects cannot append. */
static void name_audit_file(const struct config *from, struct config *to)
{
    char path[2 * CONFIG_PATH];
    if (path_is_url(to->save_dir)) {
        snprintf(path, sizeof(path), "%s/%s/%s/archive.jsonl", from->runtime_dir, from->job, from->node);
    } else {
        snprintf(path, sizeof(path), "%s/%s/audit.%s.jsonl", to->save_dir, to->job, to->node);
    }
    snprintf(to->audit_file_path, sizeof(to->audit_file_path), "%.*s", (int)sizeof(to->audit_file_path) - 1, path);
}

tck_status_t archive_new(const struct config *config, struct persistent *from, struct object_store *store,
                         struct archive **out, struct error *err)
{
    struct archive *archive = calloc(1, sizeof(*archive));
    if (archive == NULL) {
        if (store != NULL) {
            store->ops->free(store);
        }
        return error_set(err, TCK_ERR_NOMEM, "no memory for the archive");
    }
    archive->config = *config;
    archive->from = from;
    archive->store = store;
    memcpy(archive->config.save_dir, config->archive_dir, sizeof(archive->config.save_dir));
    archive->config.archive_dir[0] = archive->config.load_dir[0] = '\0';
    archive->config.max_ckpt_num = config->max_archive_num;
    name_audit_file(config, &archive->config);
    pthread_mutex_init(&archive->lock, NULL);
    *out = archive;
    return TCK_OK;
}

void archive_free(struct archive *archive)
{
    if (archive != NULL) {
        persistent_free(archive->to);
        if (archive->store != NULL) {
            archive->store->ops->free(archive->store);
        }
        pthread_mutex_destroy(&archive->lock);
        free(archive);
    }
}

void archive_cancel(struct archive *archive)
{
    if (archive != NULL) {
        atomic_store(&archive->canceled, true);
        pthread_mutex_lock(&archive->lock);
        persistent_cancel(archive->to);
        pthread_mutex_unlock(&archive->lock);
    }
}

/* If save_dir is lost, what was forgotten there must not be restored from the archive. */
static tck_status_t pass_on_forgotten(struct archive *archive, struct error *err)
{
    uint64_t saved = 0, there = 0;
    tck_status_t status = forgotten_read(&archive->from->job, &saved, err);
    if (status == TCK_OK && saved > 0) {
        status = forgotten_read(&archive->to->job, &there, err);
    }
    return status == TCK_OK && saved > there ? forgotten_write(&archive->to->job, saved, clock_wall_ms(), err) : status;
}

/* From now on, save_dir notes that the archive is in use. */
static tck_status_t accept_opened(struct archive *archive, struct error *err)
{
    tck_status_t status =
        archive->to->job.fd < 0 ? TCK_OK : second_check_other(archive->from, archive->to->job.fd, err);
    if (status == TCK_OK) {
        status = archive_note_write(&archive->from->job, archive->config.save_dir, VERSION_NONE, err);
    }
    if (status == TCK_OK) {
        status = pass_on_forgotten(archive, err);
    }
    if (status != TCK_OK) {
        persistent_free(archive->to);
        archive->to = NULL;
        name_place(err, "archive_dir", archive->config.save_dir);
    }
    return status;
}

/* Of a call to the archive once it is open: returns the status; an error gets the archive's name. */
static tck_status_t name_it(const struct archive *archive, tck_status_t status, struct error *err)
{
    return status == TCK_OK ? TCK_OK : name_place(err, "archive_dir", archive->config.save_dir);
}

/* A directory that was removed or is mounted again is found by its path alone. */
static void close_if_failed(struct archive *archive)
{
    if (archive->to != NULL && archive->to->job.fd >= 0 && archive->failed && archive->users == 0) {
        persistent_free(archive->to);
        archive->to = NULL;
    }
}

/* Ends the use that open_it began. Returns the outcome of the call. */
static tck_status_t end_use(struct archive *archive, tck_status_t outcome)
{
    pthread_mutex_lock(&archive->lock);
    archive->users--;
    archive->failed = archive->failed || (outcome != TCK_OK && outcome != TCK_ERR_CANCELED);
    pthread_mutex_unlock(&archive->lock);
    return outcome;
}

/* It may be unreachable when the agent starts, so each call tries until it is open. The caller calls end_use also after
 * an error. */
static tck_status_t open_it(struct archive *archive, struct error *err)
{
    tck_status_t status = TCK_OK;
    pthread_mutex_lock(&archive->lock);
    close_if_failed(archive);
    archive->users++;
    if (atomic_load(&archive->canceled)) {
        status = error_set(err, TCK_ERR_CANCELED, "the archive is closing");
    } else if (archive->to == NULL) {
        const struct persistent_setup setup = {.config = &archive->config,
                                               .moved = moved,
                                               .moved_ctx = archive,
                                               .terms = archive->from,
                                               .save_store = archive->store};
        status = second_find(archive->from, err); /* no directory is made where it is not mounted */
        if (status == TCK_OK) {
            archive->store = NULL;
            status = persistent_new(&setup, &archive->to, err);
        }
        status = status == TCK_OK ? accept_opened(archive, err) : status;
        archive->failed = false;
    }
    pthread_mutex_unlock(&archive->lock);
    return status;
}

tck_status_t archive_newest(struct archive *archive, struct version *out, uint64_t *wall_ms_out, struct error *err)
{
    tck_status_t status = open_it(archive, err);
    if (status == TCK_OK) {
        status = name_it(archive, persistent_newest_good(archive->to, out, wall_ms_out, err), err);
    }
    return end_use(archive, status);
}

tck_status_t archive_manifest(struct archive *archive, struct version version, struct manifest *out, struct error *err)
{
    const struct published which = {.version = version};
    return persistent_manifest(archive->from, &which, out, err);
}

tck_status_t archive_sweep(struct archive *archive, uint64_t term, struct version keep, struct error *err)
{
    tck_status_t status = open_it(archive, err);
    if (status == TCK_OK) {
        status = name_it(archive, persistent_sweep(archive->to, term, keep, err), err);
    }
    return end_use(archive, status);
}

/* Opens a file of a version in save_dir; its folder and itself are the caller's. */
static tck_status_t open_source(const struct archive *archive, struct version version, const char *name,
                                struct folder *dir_out, struct folder_file *out, struct error *err)
{
    struct version_dirs dirs = persistent_dirs(archive->from);
    const struct published which = {.version = version};
    tck_status_t status = version_open(&dirs, &which, dir_out, err);
    if (status == TCK_OK) {
        status = folder_open_file(dir_out, name, out, err);
    }
    return status == TCK_OK ? TCK_OK : name_place(err, "save_dir", archive->from->config->save_dir);
}

/* NOLINTNEXTLINE(readability-function-size): which file, and until when */
tck_status_t archive_copy(struct archive *archive, struct version version, const struct manifest_file *file,
                          const atomic_bool *stops, struct error *err)
{
    struct folder dir = FOLDER_NONE;
    struct folder_file from = FOLDER_FILE_NONE;
    tck_status_t status = open_it(archive, err);
    if (status == TCK_OK) {
        status = open_source(archive, version, file->name, &dir, &from, err);
    }
    if (status == TCK_OK) {
        const struct copy_source source = {.version = version, .file = file, .from = &from, .stops = stops};
        status = name_it(archive, archive->to->ops->copy(archive->to, &source, err), err);
    }
    if (status != TCK_OK) {
        char name[DIR_NAME_MAX];
        version_dir_name(version, name);
        error_prefix(err, "copy %s/%s", name, file->name);
    }
    folder_file_forget_cached(&from); /* memory is for the trainers */
    folder_file_close(&from);
    folder_close(&dir);
    return end_use(archive, status);
}

tck_status_t archive_publish(struct archive *archive, const struct manifest *manifest, uint64_t term, struct error *err)
{
    const struct publish_ask ask = {.manifest = manifest, .term = term};
    struct error why = {0};
    tck_status_t status = open_it(archive, err);
    if (status == TCK_OK) {
        status = persistent_publish_now(archive->to, &ask, err);
    }
    if (status == TCK_OK) { /* so that a start knows of it while the archive cannot be reached */
        status = archive_note_write(&archive->from->job, archive->config.save_dir, manifest->version, err);
    }
    if (status == TCK_OK && persistent_sweep(archive->to, term, VERSION_NONE, &why) != TCK_OK) {
        log_warn("%s: what interrupted copies have left stays for now: %s", archive->config.save_dir, why.text);
    }
    return end_use(archive, status);
}
