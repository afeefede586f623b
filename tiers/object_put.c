/* SPDX-License-Identifier: Apache-2.0
 * Puts a shard file into a store of objects, in parts straight from the slot, each with the CRC that follows from the
 * image's digests: the server refuses what differs, so nothing has to be read back, and a slot that is reused meanwhile
 * spoils nothing. An object appears whole or not at all. */
#include "tiers/object_transfer.h"
#include "tiers/persistent_objects.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART_CHUNKS     4u     /* 16 MiB; all but the last part need at least 5 MiB */
#define PARTS_MAX       10000u /* of one object */
#define PARTS_IN_FLIGHT 8u
#define WHAT_BYTES      (DIR_NAME_MAX + MANIFEST_FILE_NAME)

struct put {
    struct transfer t; /* first */
    struct tier_item item;
    uint64_t epoch; /* of its beginning: once p's differs, this put is given up */
    tier_done_fn *done;
    void *ctx;
    struct folder dir; /* the version's */
    char name[MANIFEST_FILE_NAME], key[OBJECT_KEY_MAX];
    char what[WHAT_BYTES];            /* path below the job's folder */
    uint32_t part_chunks, part_count; /* 1: no upload in parts */
    struct object_upload upload;      /* id NULL: not begun, or ended */
    struct object_part *parts;
    struct error outcome;
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

static void put_free(struct put *op)
{
    folder_close(&op->dir);
    free(op->upload.id);
    free(op->parts);
    free(op);
}

static void put_finish(struct put *op)
{
    struct persistent *p = op->t.p;
    if (op->outcome.code != TCK_OK) {
        error_prefix(&op->outcome, "%s/%s/%s", p->config->save_dir, p->config->job, op->what);
    }
    audit_result(p->audit, AUDIT_WRITE, op->what, &op->outcome);
    op->done(op->ctx, &op->outcome);
    put_free(op);
    persistent_unref(p);
}

/* ---- the end --------------------------------------------------------------------------------------------------- */

/* Of a version's shard there is only one content, so an object of its size is this one. */
static bool is_there(const struct put *op)
{
    struct object_info info = {0};
    struct error ignored;
    struct object_store *store = store_of(op);
    return store->ops->head(store, object_folder_call(op->dir.objects), op->key, &info, &ignored) == TCK_OK &&
           info.bytes == op->item.image_bytes;
}

/* The answer may have been lost after the object was made: then the upload is no longer known. */
static tck_status_t finish_upload(struct put *op, struct error *err)
{
    struct object_store *store = store_of(op);
    tck_status_t status = store->ops->upload_finish(store, object_folder_call(op->dir.objects), &op->upload, op->parts,
                                                    op->part_count, err);
    bool unknown = status == TCK_ERR_TIMEDOUT || status == TCK_ERR_NOENT;
    op->upload.id = NULL;
    if (unknown && is_there(op)) {
        return TCK_OK;
    }
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
    if (op->part_count > 1) {
        tck_status_t status = finish_upload(op, err);
        if (status != TCK_OK) {
            return status;
        }
    }
    return put_metadata(op, err);
}

/* What cannot be aborted now is by the next term's coordinator. */
static tck_status_t abort_step(struct transfer *t, uint32_t i, struct error *err)
{
    struct put *op = put_of(t);
    struct object_store *store = store_of(op);
    (void)i;
    tck_status_t status = store->ops->upload_abort(store, object_folder_call(op->dir.objects), &op->upload, err);
    op->upload.id = NULL;
    return status;
}

static void at_end(struct transfer *t)
{
    struct put *op = put_of(t);
    if (op->outcome.code == TCK_OK) {
        op->outcome = t->outcome;
    }
    put_finish(op);
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
    if (aborts && op->upload.id == NULL) {
        put_finish(op);
        return;
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
    uint32_t chunks = chunk_count(op->item.image_bytes), first = i * op->part_chunks;
    uint32_t count = chunks - first < op->part_chunks ? chunks - first : op->part_chunks;
    uint64_t begin = (uint64_t)first * CHUNK_BYTES, end = begin + (uint64_t)count * CHUNK_BYTES;
    end = end < op->item.image_bytes ? end : op->item.image_bytes;
    *crc_out = crc32c_of_chunks(op->item.crcs, op->item.image_bytes, first, count);
    return (struct object_bytes){.data = op->item.image + begin, .bytes = end - begin, .crc32c = crc_out};
}

static uint64_t part_bytes(const struct transfer *t, uint32_t i)
{
    uint32_t crc;
    return part_of((const struct put *)t, i, &crc).bytes;
}

/* Whoever reads TCK_ERR_CORRUPT drops the copy in the slot, so it must be the slot that differs, not what the server
 * has received. */
static tck_status_t judge(const struct object_bytes *part, uint32_t crc, tck_status_t status, struct error *err)
{
    bool differs = status == TCK_ERR_CORRUPT && crc32c(0, part->data, part->bytes) != crc;
    return status == TCK_ERR_CORRUPT && !differs ? (err->code = TCK_ERR_IO) : status;
}

static tck_status_t part_step(struct transfer *t, uint32_t i, struct error *err)
{
    struct put *op = put_of(t);
    struct object_store *store = store_of(op);
    const struct object_call *call = object_folder_call(op->dir.objects);
    uint32_t crc = 0;
    struct object_bytes part = part_of(op, i, &crc);
    if (op->part_count == 1) {
        return judge(&part, crc, store->ops->put(store, call, op->key, &part, err), err);
    }
    tck_status_t status = store->ops->upload_part(store, call, &op->upload, i + 1, &part, &op->parts[i], err);
    status = judge(&part, crc, status, err);
    return status == TCK_OK ? TCK_OK : error_prefix(err, "part %" PRIu32 " of %" PRIu32, i + 1, op->part_count);
}

static void parts_ended(struct transfer *t)
{
    struct put *op = put_of(t);
    op->outcome = t->outcome;
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
    tck_status_t status = audit_intent(t->p->audit, AUDIT_WRITE, op->what, err);
    if (status == TCK_OK && op->part_count > 1) {
        status = store->ops->upload_begin(store, object_folder_call(op->dir.objects), op->key, &op->upload, err);
    }
    return status;
}

static void begun(struct transfer *t)
{
    struct put *op = put_of(t);
    op->outcome = t->outcome;
    if (op->outcome.code == TCK_OK) {
        t->count = op->part_count;
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
    uint32_t chunks = chunk_count(op->item.image_bytes), least = (chunks + PARTS_MAX - 1) / PARTS_MAX;
    version_dir_name(op->item.version, version);
    manifest_file_name(op->item.shard, op->name);
    snprintf(op->what, sizeof(op->what), "%s/%s", version, op->name);
    op->part_chunks = least > PART_CHUNKS ? least : PART_CHUNKS;
    op->part_count = (chunks + op->part_chunks - 1) / op->part_chunks;
    op->parts = calloc(op->part_count, sizeof(*op->parts));
    if (op->parts == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "%s: no memory for a put", op->what);
    }
    tck_status_t status = folder_open(&op->t.p->job, version, &op->dir, err);
    return status == TCK_OK ? object_folder_key(op->dir.objects, op->name, op->key, err) : status;
}

tck_status_t objects_put(struct persistent *p, const struct tier_item *item, tier_done_fn *done, void *ctx,
                         struct error *err)
{
    struct put *op = calloc(1, sizeof(*op));
    if (op == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a put");
    }
    *op = (struct put){.item = *item, .epoch = atomic_load(&p->epoch), .done = done, .ctx = ctx, .dir = FOLDER_NONE};
    op->t = (struct transfer){
        .p = p, .progress = item->progress, .count = 1, .width = 1, .step = begin_step, .ended = begun};
    tck_status_t status = put_prepare(op, err);
    if (status == TCK_OK) {
        status = transfer_start(&op->t, err);
    }
    if (status != TCK_OK) {
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
