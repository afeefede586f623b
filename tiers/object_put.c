/* SPDX-License-Identifier: Apache-2.0
 * Puts a shard file into a store of objects, in parts straight from the slot. Each part is sent with the CRC that
 * follows from the digests that the image had when the put began: the put has its own copy of them, so the server
 * refuses what a slot that is reused meanwhile has in their place. An object appears whole or not at all. What a put
 * that failed has sent is kept for the next one. */
#include "tiers/object_kept.h"
#include "tiers/object_parts.h"
#include "tiers/object_transfer.h"
#include "tiers/persistent_objects.h"

#include "base/failpoint.h"
#include "base/log.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTS_IN_FLIGHT 8u
#define FINISHES_MAX    3u /* that end undecided, before an upload starts from the beginning */
#define WHAT_BYTES      (DIR_NAME_MAX + MANIFEST_FILE_NAME)

struct put {
    struct transfer t;     /* first */
    struct tier_item item; /* with its own digests: the slot may be reused once this put is given up */
    uint64_t epoch;        /* of its beginning: once p's differs, this put is given up */
    atomic_bool canceled;  /* its calls end: it was given up */
    struct object_call call;
    struct put *next; /* of those under way */
    tier_done_fn *done;
    void *ctx;
    struct folder dir; /* the version's */
    char name[MANIFEST_FILE_NAME];
    char what[WHAT_BYTES]; /* path below the job's folder */
    struct object_parts parts;
    struct kept_put sent;      /* so far; part_count 1: no upload in parts */
    bool spoiled;              /* what was sent is of no use to another put */
    uint32_t *missing, sends;  /* the parts that are to be sent; their number */
    struct kept_put *obsolete; /* what earlier puts have left */
    struct error outcome;
    uint32_t crcs[];
};

static struct put *put_of(struct transfer *t)
{
    return (struct put *)t;
}

static struct object_store *store_of(const struct put *op)
{
    return object_folder_store(op->dir.objects);
}

static bool is_given_up(const struct transfer *t)
{
    return ((const struct put *)t)->epoch != atomic_load(&t->p->epoch);
}

/* ---- those under way, which any thread may give up -------------------------------------------------------------- */

static void link_put(struct put *op)
{
    struct persistent *p = op->t.p;
    pthread_mutex_lock(&p->puts_lock);
    op->next = p->puts;
    p->puts = op;
    pthread_mutex_unlock(&p->puts_lock);
}

static void unlink_put(const struct put *op)
{
    struct persistent *p = op->t.p;
    pthread_mutex_lock(&p->puts_lock);
    struct put **at = &p->puts;
    while (*at != op) {
        at = &(*at)->next;
    }
    *at = op->next;
    pthread_mutex_unlock(&p->puts_lock);
}

void objects_give_up(struct persistent *p)
{
    pthread_mutex_lock(&p->puts_lock);
    for (struct put *op = p->puts; op != NULL; op = op->next) {
        atomic_store(&op->canceled, true);
    }
    pthread_mutex_unlock(&p->puts_lock);
}

static void put_free(struct put *op)
{
    folder_close(&op->dir);
    free(op->sent.upload.id);
    free(op->sent.parts);
    free(op->missing);
    kept_free(op->obsolete);
    free(op);
}

/* ---- what is already there ------------------------------------------------------------------------------------- */

/* Parts that have arrived, of an upload in parts or of one value. */
static uint32_t count_sent(const struct put *op)
{
    uint32_t count = 0;
    for (uint32_t i = 0; op->sent.parts != NULL && i < op->sent.part_count; i++) {
        count += op->sent.parts[i].bytes > 0;
    }
    return count;
}

static bool is_complete(const struct put *op)
{
    return op->sent.upload.id == NULL && count_sent(op) == op->sent.part_count;
}

static bool is_kept(const struct put *op)
{
    return !op->spoiled && count_sent(op) > 0;
}

/* Also after a success: another shard's file may fail, and then all of the version's are put once more. */
static void keep(struct put *op)
{
    if (is_kept(op)) {
        kept_add(&op->t.p->kept, &op->sent);
    }
}

/* By its size alone: for one whose put has succeeded here. */
static tck_status_t find_object(const struct put *op, bool *there_out, struct error *err)
{
    struct object_info info = {0};
    struct object_store *store = store_of(op);
    tck_status_t status = store->ops->head(store, object_folder_call(op->dir.objects), op->sent.key, &info, err);
    *there_out = status == TCK_OK && info.bytes == op->item.image_bytes;
    return status == TCK_ERR_NOENT ? TCK_OK : status;
}

static void find_missing(struct put *op)
{
    op->sends = 0;
    for (uint32_t i = 0; i < op->sent.part_count; i++) {
        if (op->sent.parts[i].bytes == 0) {
            op->missing[op->sends++] = i;
        }
    }
}

/* Takes what an earlier put of the same content has left. */
static tck_status_t find_sent(struct put *op, struct error *err)
{
    op->missing = calloc(op->sent.part_count, sizeof(*op->missing));
    if (!kept_take(&op->t.p->kept, &op->sent)) {
        op->sent.parts = calloc(op->sent.part_count, sizeof(*op->sent.parts));
    }
    if (op->missing == NULL || op->sent.parts == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "%s: no memory for a put", op->what);
    }
    find_missing(op);
    return TCK_OK;
}

/* A complete object may have been deleted since. */
static tck_status_t check_complete(struct put *op, struct error *err)
{
    bool there = false;
    tck_status_t status = find_object(op, &there, err);
    if (status == TCK_OK && !there) {
        memset(op->sent.parts, 0, op->sent.part_count * sizeof(*op->sent.parts));
        find_missing(op);
    }
    return status;
}

/* Uploads of other versions will not be finished. */
static void abort_obsolete(const struct put *op)
{
    struct object_store *store = store_of(op);
    for (struct kept_put *one = op->obsolete; one != NULL; one = one->next) {
        struct error why;
        if (one->upload.id != NULL &&
            store->ops->upload_abort(store, object_folder_call(op->dir.objects), &one->upload, &why) != TCK_OK) {
            log_warn("%s: an unfinished upload stays: %s", op->t.p->config->save_dir, why.text);
        }
    }
}

/* ---- the end --------------------------------------------------------------------------------------------------- */

/* Errors of the store name the object themselves, with at least this much of the store's name. */
#define NAMED_BYTES 100

static bool names_store(const struct error *err, const struct object_store *store)
{
    char name[NAMED_BYTES + 1];
    snprintf(name, sizeof(name), "%s", store->name);
    return strstr(err->text, name) != NULL;
}

static void put_finish(struct put *op)
{
    struct persistent *p = op->t.p;
    if (op->outcome.code != TCK_OK && !names_store(&op->outcome, store_of(op))) {
        error_prefix(&op->outcome, "%s/%s/%s", p->config->save_dir, p->config->job, op->what);
    }
    audit_result(p->audit, AUDIT_WRITE, op->what, &op->outcome);
    keep(op);
    unlink_put(op);
    op->done(op->ctx, &op->outcome);
    put_free(op);
    persistent_unref(p);
}

/* Whether the object is this image. Another of its size may be there, from an earlier attempt. */
static bool is_there(const struct put *op)
{
    const struct tier_item *item = &op->item;
    struct object_store *store = store_of(op);
    struct error ignored;
    bool same = false;
    uint8_t *buffer = persistent_buffer(item->image_bytes);
    if (buffer == NULL || find_object(op, &same, &ignored) != TCK_OK) {
        same = false;
    }
    for (uint32_t i = 0; i < chunk_count(item->image_bytes) && same; i++) {
        uint32_t bytes = chunk_size(item->image_bytes, i);
        same = store->ops->get_range(store, &op->call, op->sent.key, (uint64_t)i * CHUNK_BYTES, buffer, bytes,
                                     &ignored) == TCK_OK &&
               crc32c(0, buffer, bytes) == item->crcs[i];
    }
    free(buffer);
    return same;
}

/* The answer may have been lost after the object was made. An upload that is left undecided can be finished by the next
 * put. */
static tck_status_t finish_upload(struct put *op, struct error *err)
{
    struct object_store *store = store_of(op);
    char *id = strdup(op->sent.upload.id);
    tck_status_t status =
        store->ops->upload_finish(store, &op->call, &op->sent.upload, op->sent.parts, op->sent.part_count, err);
    free(op->sent.upload.id); /* left after TCK_ERR_TIMEDOUT alone */
    op->sent.upload.id = NULL;
    if (status == TCK_OK || (status == TCK_ERR_TIMEDOUT && is_there(op))) {
        free(id);
        return TCK_OK;
    }
    op->sent.upload.id = id;
    op->spoiled =
        id == NULL || status == TCK_ERR_NOENT || status == TCK_ERR_CORRUPT || ++op->sent.finishes == FINISHES_MAX;
    return status == TCK_ERR_CORRUPT ? (err->code = TCK_ERR_IO) : status;
}

static tck_status_t put_metadata(struct put *op, struct error *err)
{
    struct metadata metadata = {0};
    tck_status_t status = metadata_take(&op->item, &metadata, err);
    if (status == TCK_OK && is_given_up(&op->t)) { /* then the slot may have had other content already */
        status = error_set(err, TCK_ERR_CANCELED, METADATA_NAME ": was given up");
    }
    if (status == TCK_OK && metadata.bytes > 0) {
        status = folder_write(&op->dir, METADATA_NAME, metadata.content, metadata.bytes, err);
    }
    free(metadata.content);
    return status;
}

static tck_status_t end_step(struct transfer *t, uint32_t i, struct error *err)
{
    struct put *op = put_of(t);
    (void)i;
    abort_obsolete(op);
    if (is_given_up(t)) { /* a part may have had other content, and the server may not have compared it */
        return error_set(err, TCK_ERR_CANCELED, "given up");
    }
    if (!is_complete(op)) {
        failpoint(object, finishing);
        tck_status_t status = finish_upload(op, err);
        if (status != TCK_OK) {
            return status;
        }
        failpoint(object, finished);
    }
    if (op->t.p->unchecked && op->t.p->config->storage_verify == SWITCH_ON && !is_there(op)) {
        op->spoiled = true;
        return error_set(err, TCK_ERR_IO, "was read back, and is not what was written");
    }
    return put_metadata(op, err);
}

/* What cannot be aborted now is aborted by the sweep of a later term. This must not be canceled with the put. */
static tck_status_t abort_step(struct transfer *t, uint32_t i, struct error *err)
{
    struct put *op = put_of(t);
    struct object_store *store = store_of(op);
    (void)i;
    tck_status_t status = store->ops->upload_abort(store, object_folder_call(op->dir.objects), &op->sent.upload, err);
    op->sent.upload.id = NULL;
    op->spoiled = true;
    return status;
}

static void begin_end(struct put *op);

static void at_end(struct transfer *t)
{
    struct put *op = put_of(t);
    if (op->outcome.code == TCK_OK) {
        op->outcome = t->outcome;
    }
    if (op->outcome.code == TCK_OK) {
        put_finish(op);
    } else {
        begin_end(op);
    }
}

static void begin_end(struct put *op)
{
    struct error err;
    bool aborts = op->outcome.code != TCK_OK;
    op->t.count = 1;
    op->t.step = aborts ? abort_step : end_step;
    op->t.bytes = NULL;
    op->t.given_up = NULL;
    op->t.ended = at_end;
    if (aborts && (op->sent.upload.id == NULL || is_kept(op))) {
        put_finish(op);
        return;
    }
    if (!aborts) {
        op->obsolete = kept_take_obsolete(&op->t.p->kept, &op->sent);
    }
    tck_status_t status = transfer_start(&op->t, &err);
    if (status != TCK_OK) {
        op->outcome = aborts ? op->outcome : err;
        put_finish(op);
    }
}

/* ---- the parts ------------------------------------------------------------------------------------------------- */

static struct object_bytes part_of(const struct put *op, uint32_t i, uint32_t *crc_out)
{
    const struct object_slice slice = object_parts_slice(&op->parts, i);
    *crc_out = crc32c_of_chunks(op->item.crcs, op->item.image_bytes, slice.first, slice.chunks);
    return (struct object_bytes){.data = op->item.image + slice.begin, .bytes = slice.bytes, .crc32c = crc_out};
}

static uint64_t part_bytes(const struct transfer *t, uint32_t i)
{
    const struct put *op = (const struct put *)t;
    return object_parts_slice(&op->parts, op->missing[i]).bytes;
}

/* A caller that gets TCK_ERR_CORRUPT drops the copy in the slot, so it must be the slot that differs, not what the
 * server has received. */
static tck_status_t judge(const struct object_bytes *part, uint32_t crc, tck_status_t status, struct error *err)
{
    bool differs = status == TCK_ERR_CORRUPT && crc32c(0, part->data, part->bytes) != crc;
    return status == TCK_ERR_CORRUPT && !differs ? (err->code = TCK_ERR_IO) : status;
}

/* A part counts as sent only if the slot still had the content after it. */
static void note_sent(struct put *op, uint32_t part, const struct object_part *sent)
{
    if (!is_given_up(&op->t)) {
        op->sent.parts[part] = *sent;
    }
}

static tck_status_t part_step(struct transfer *t, uint32_t i, struct error *err)
{
    struct put *op = put_of(t);
    struct object_store *store = store_of(op);
    uint32_t crc = 0, number = op->missing[i];
    struct object_bytes part = part_of(op, number, &crc);
    struct object_part sent = {.bytes = part.bytes};
    bool whole = op->sent.part_count == 1;
    tck_status_t status =
        whole ? store->ops->put(store, &op->call, op->sent.key, &part, err)
              : store->ops->upload_part(store, &op->call, &op->sent.upload, number + 1, &part, &sent, err);
    status = judge(&part, crc, status, err);
    if (status == TCK_OK) {
        note_sent(op, number, &sent);
        return TCK_OK;
    }
    return whole ? status : error_prefix(err, "part %" PRIu32 " of %" PRIu32, number + 1, op->sent.part_count);
}

static void parts_ended(struct transfer *t)
{
    struct put *op = put_of(t);
    op->outcome = t->outcome;
    op->spoiled = op->outcome.code == TCK_ERR_NOENT || op->outcome.code == TCK_ERR_CORRUPT;
    if (is_given_up(t)) { /* then a part may have had other content already */
        (void)error_set(&op->outcome, TCK_ERR_CANCELED, "given up");
    }
    begin_end(op);
}

/* ---- the beginning --------------------------------------------------------------------------------------------- */

static tck_status_t begin_step(struct transfer *t, uint32_t i, struct error *err)
{
    struct put *op = put_of(t);
    struct object_store *store = store_of(op);
    (void)i;
    tck_status_t status = TCK_OK;
    if (!hash128_is(digest_root(op->item.crcs, op->item.image_bytes), op->item.root)) {
        status = error_set(err, TCK_ERR_CORRUPT, "its digests in memory do not match its root");
    }
    if (status == TCK_OK) {
        status = audit_intent(t->p->audit, AUDIT_WRITE, op->what, err);
    }
    if (status == TCK_OK && is_complete(op)) {
        status = check_complete(op, err);
    }
    if (status == TCK_OK && op->sent.part_count > 1 && op->sent.upload.id == NULL && op->sends > 0) {
        status = store->ops->upload_begin(store, &op->call, op->sent.key, &op->sent.upload, err);
        failpoint(object, uploading);
    }
    return status;
}

static void begun(struct transfer *t)
{
    struct put *op = put_of(t);
    op->outcome = t->outcome;
    if (op->outcome.code == TCK_OK && op->sends == 0) {
        parts_ended(t);
        return;
    }
    if (op->outcome.code == TCK_OK) {
        t->count = op->sends;
        t->width = PARTS_IN_FLIGHT;
        t->step = part_step;
        t->bytes = part_bytes;
        t->given_up = is_given_up;
        t->ended = parts_ended;
        op->outcome.code = transfer_start(t, &op->outcome);
    }
    if (op->outcome.code != TCK_OK) {
        begin_end(op);
    }
}

static tck_status_t put_prepare(struct put *op, struct error *err)
{
    char version[DIR_NAME_MAX];
    version_dir_name(op->item.version, version);
    manifest_file_name(op->item.shard, op->name);
    snprintf(op->what, sizeof(op->what), "%s/%s", version, op->name);
    op->parts = object_parts_of(op->item.image_bytes);
    op->sent.part_count = op->parts.count;
    op->sent.version = op->item.version;
    op->sent.root = op->item.root;
    op->sent.bytes = op->item.image_bytes;
    tck_status_t status = folder_open(&op->t.p->job, version, &op->dir, err);
    if (status == TCK_OK) {
        op->call = *object_folder_call(op->dir.objects);
        op->call.canceled = &op->canceled;
        status = object_folder_key(op->dir.objects, op->name, op->sent.key, err);
    }
    return status == TCK_OK ? find_sent(op, err) : status;
}

tck_status_t objects_put(struct persistent *p, const struct tier_item *item, tier_done_fn *done, void *ctx,
                         struct error *err)
{
    size_t crcs_bytes = chunk_count(item->image_bytes) * sizeof(uint32_t);
    struct put *op = calloc(1, sizeof(*op) + crcs_bytes);
    if (op == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a put");
    }
    *op = (struct put){.item = *item, .epoch = atomic_load(&p->epoch), .done = done, .ctx = ctx, .dir = FOLDER_NONE};
    memcpy(op->crcs, item->crcs, crcs_bytes);
    op->item.crcs = op->crcs;
    op->t = (struct transfer){
        .p = p, .progress = item->progress, .count = 1, .width = 1, .step = begin_step, .ended = begun};
    link_put(op);
    tck_status_t status = put_prepare(op, err);
    if (status == TCK_OK) {
        status = transfer_start(&op->t, err);
    }
    if (status != TCK_OK) {
        unlink_put(op);
        keep(op);
        put_free(op);
        return error_prefix(err, "start a put");
    }
    persistent_ref(p);
    return TCK_OK;
}

void objects_resume(struct persistent *p)
{
    transfers_resume(p);
}
