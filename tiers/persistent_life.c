/* SPDX-License-Identifier: Apache-2.0
 * The persistent tier's life, and the calls that depend on the kind of save_dir. */
#include "tiers/persistent.h"

#include "base/path.h"
#include "tiers/object/s3_store.h"
#include "tiers/object_transfer.h"
#include "tiers/persistent_dir.h"
#include "tiers/persistent_objects.h"
#include <stdlib.h>
#include <string.h>

#define TRANSFERS 16 /* threads; each waits for one request to a store of objects */

static const struct persistent_ops directory_ops = {
    .open_again = dir_open_again,
    .open_to_publish = dir_open_to_publish,
    .secret = dir_secret,
    .claim_one = dir_claim_one,
    .claimed = dir_claimed,
    .note = dir_note,
    .put = dir_put,
    .resume = dir_resume,
    .give_up = dir_give_up,
    .publish = dir_publish,
    .published = dir_published,
    .sweep = dir_sweep,
    .delete_version = dir_delete_version,
    .repair = dir_repair,
    .copy = dir_copy,
};

static const struct persistent_ops objects_ops = {
    .open_again = objects_open_again,
    .open_to_publish = objects_open_again,
    .secret = objects_secret,
    .claim_one = objects_claim_one,
    .claimed = objects_claimed,
    .note = objects_note,
    .put = objects_put,
    .resume = objects_resume,
    .give_up = objects_give_up,
    .publish = objects_publish,
    .published = objects_published,
    .sweep = objects_sweep,
    .delete_version = objects_delete_version,
    .repair = objects_repair,
    .copy = objects_copy,
};

/* ---- life ------------------------------------------------------------------------------------------------------ */

/* The store that holds this directory of the configuration; NULL: it is a directory. */
static tck_status_t find_store(const char *dir, struct object_store *given, struct object_store **out,
                               struct error *err)
{
    *out = given;
    return given != NULL || !path_is_url(dir) ? TCK_OK : s3_store_new(dir, out, err);
}

static tck_status_t open_save_dir(struct persistent *p, const struct persistent_setup *setup, struct error *err)
{
    struct object_store *store = NULL;
    tck_status_t status = find_store(p->config->save_dir, setup->save_store, &store, err);
    if (status != TCK_OK) {
        return name_place(err, persistent_key(p), p->config->save_dir);
    }
    p->ops = store != NULL ? &objects_ops : &directory_ops;
    if (store != NULL) {
        return setup->only_reads ? objects_find(p, store, err) : objects_open(p, store, err);
    }
    return setup->only_reads ? dir_find(p, err) : dir_open(p, err);
}

static tck_status_t open_load_dir(struct persistent *p, const struct persistent_setup *setup, struct error *err)
{
    struct object_store *store = NULL;
    const char *dir = p->config->load_dir;
    p->second_store = setup->load_store;
    if (dir[0] == '\0' || (path_is_url(dir) && strcmp(dir, p->config->save_dir) == 0)) {
        return TCK_OK;
    }
    tck_status_t status = find_store(dir, p->second_store, &store, err);
    p->second_store = NULL;
    if (status != TCK_OK) {
        return name_place(err, "load_dir", dir);
    }
    status = store != NULL ? objects_open_load(p, store, err) : dir_open_load(p, err);
    atomic_store(&p->second_open, status == TCK_OK && folder_is(&p->second));
    return status;
}

static tck_status_t open_workers(struct persistent *p, struct error *err)
{
    tck_status_t status = TCK_OK;
    bool archive = p->config->archive_dir[0] != '\0'; /* which may be opened later */
    bool objects = archive && (path_is_url(p->config->archive_dir) || p->second_store != NULL);
    if (p->job.fd >= 0 || p->second.fd >= 0 || (archive && !objects)) {
        status = uring_new(p->loop, p->pool, URING_IF_ALLOWED, &p->uring, err);
    }
    if (status == TCK_OK && (p->job.objects != NULL || p->second.objects != NULL || objects)) {
        status = pool_new(p->loop, TRANSFERS, &p->transfers, err);
    }
    return status;
}

static tck_status_t open_all(struct persistent *p, const struct persistent_setup *setup, struct error *err)
{
    tck_status_t status = open_save_dir(p, setup, err);
    if (status == TCK_OK) {
        status = open_load_dir(p, setup, err);
    }
    if (status == TCK_OK && setup->only_reads && !folder_is(&p->job)) {
        status = second_find(p, err); /* all that there is */
    }
    if (status == TCK_OK && setup->only_reads) {
        return folder_is(&p->job) || folder_is(second_place(p))
                   ? TCK_OK
                   : error_set(err, TCK_ERR_NOENT, "job %s has nothing in save_dir %s", p->config->job,
                               p->config->save_dir);
    }
    if (status == TCK_OK) {
        status = dir_open_audit(p, err);
    }
    return status == TCK_OK && p->loop != NULL ? open_workers(p, err) : status;
}

tck_status_t persistent_new(const struct persistent_setup *setup, struct persistent **out, struct error *err)
{
    struct persistent *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the persistent tier");
    }
    *p = (struct persistent){.ops = &directory_ops,
                             .terms = setup->terms != NULL ? setup->terms : p,
                             .loop = setup->loop,
                             .pool = setup->pool,
                             .config = setup->config,
                             .pace = setup->pace,
                             .moved = setup->moved,
                             .moved_ctx = setup->moved_ctx,
                             .job = FOLDER_NONE,
                             .second = FOLDER_NONE,
                             .clones = {.state = CLONES_UNKNOWN},
                             .index_limits = INDEX_LIMITS,
                             .refs = 1};
    pthread_mutex_init(&p->puts_lock, NULL);
    pthread_mutex_init(&p->versions_lock, NULL);
    pthread_mutex_init(&p->second_lock, NULL);
    atomic_store(&p->claim_seen, setup->claimed);
    tck_status_t status = open_all(p, setup, err);
    if (status != TCK_OK) {
        persistent_free(p);
        return status;
    }
    *out = p;
    return TCK_OK;
}

/* Calls to a store end with TCK_ERR_CANCELED; those to a directory cannot be ended. */
static void cancel(const struct folder *folder)
{
    struct object_store *store = folder->objects != NULL ? object_folder_store(folder->objects) : NULL;
    if (store != NULL) {
        store->ops->cancel(store);
    }
}

void persistent_cancel(struct persistent *p)
{
    if (p != NULL) {
        atomic_store(&p->canceled, true);
        cancel(&p->job);
        cancel(second_place(p));
    }
}

void persistent_free(struct persistent *p)
{
    if (p == NULL) {
        return;
    }
    p->closing = true;
    persistent_cancel(p);
    uring_free(p->uring);
    p->uring = NULL;
    transfers_resume(p); /* those that were throttled end here, and the others with their threads */
    if (p->transfers != NULL) {
        pool_free(p->transfers);
        p->transfers = NULL;
    }
    persistent_unref(p);
}

/* ---- calls ----------------------------------------------------------------------------------------------------- */

tck_status_t persistent_secret(struct persistent *p, struct secret *out, struct error *err)
{
    return p->ops->secret(p, out, err);
}

tck_status_t persistent_note_holder(struct persistent *p, uint64_t term, const struct term_holder *holder,
                                    struct error *err)
{
    return p->ops->note(p, term, &(struct term_addition){.holder = holder}, err);
}

tck_status_t persistent_note_restore(struct persistent *p, uint64_t term, struct version version, struct error *err)
{
    return p->ops->note(p, term, &(struct term_addition){.restored = version}, err);
}

tck_status_t persistent_note_commit(struct persistent *p, uint64_t term, struct error *err)
{
    return p->ops->note(p, term, &(struct term_addition){.committed = true}, err);
}

tck_status_t persistent_note_end(struct persistent *p, uint64_t term, struct error *err)
{
    return p->ops->note(p, term, &(struct term_addition){.ended_well = true}, err);
}

tck_status_t persistent_put(struct persistent *p, const struct tier_item *item, tier_done_fn *done, void *ctx,
                            struct error *err)
{
    if (p->closing) {
        return error_set(err, TCK_ERR_CANCELED, "put: the persistent tier is closing");
    }
    if (p->loop == NULL || version_none(item->version) || item->image_bytes == 0) {
        return error_set(err, TCK_ERR_INVAL, "put: there is no event loop, no version or no data");
    }
    return p->ops->put(p, item, done, ctx, err);
}

void persistent_resume(struct persistent *p)
{
    p->ops->resume(p);
}

void persistent_give_up(struct persistent *p)
{
    atomic_fetch_add(&p->epoch, 1); /* first: a call that is canceled must see why */
    p->ops->give_up(p);
}

tck_status_t persistent_sweep(struct persistent *p, uint64_t term, struct version keep, struct error *err)
{
    return p->ops->sweep(p, term, keep, err);
}

/* NOLINTNEXTLINE(readability-function-size): the file, and the image with its bytes */
tck_status_t persistent_repair(struct persistent *p, const struct published *which, const struct manifest_file *file,
                               const uint8_t *image, struct error *err)
{
    return p->ops->repair(p, which, file, image, err);
}
