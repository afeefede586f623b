/* SPDX-License-Identifier: Apache-2.0
 * Each record and blob of this rank gets a source in the published version, or none; all sources are read once to check
 * them, and once more into place. */
#include "client/reshard.h"

#include "base/log.h"
#include "client/shared_headers.h"
#include "published/published.h"
#include "published/tiles.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUND_BYTES   4096        /* that ranks exchange at a time */
#define SCRATCH_BYTES (16u << 20) /* buffer for what is read only to be checked */
#define WIDEST        8           /* bytes of an element */

enum source { FROM_NOWHERE, FROM_BOX, FROM_ENTRY, FROM_BLOB };

struct origin {
    enum source source;
    char key[TCK_MAX_KEY + 1]; /* of a box or blob in the version */
    int rank;                  /* of a blob: whose; -1: the one that there is */
    uint64_t entry;
};

struct resharding {
    const struct tck_client *client;
    struct activity *activity; /* of the client */
    struct tck_published *published;
    uint32_t saved_world_size;
    uint32_t rank; /* of the saved world: whose private data this rank may get */
    uint8_t *scratch;
    uint32_t *key_numbers; /* of each entry of the table: keys are counted in their order */
    uint32_t key_count;
    uint8_t *wanted; /* a bit for each key, rounded up to whole exchanges */
    uint64_t bytes;
    uint32_t left;
    struct error *err;
};

/* ---- where from -------------------------------------------------------------------------------------------------- */

static bool same_world(const struct resharding *r)
{
    return r->saved_world_size == r->client->oob.world_size;
}

/* The part of the key behind "rank<r>/" if the key is this rank's own, else NULL. */
static const char *own_part(const struct resharding *r, const char *key)
{
    char prefix[32];
    int len = snprintf(prefix, sizeof(prefix), "rank%" PRIu32 "/", r->client->oob.rank);
    return strncmp(key, prefix, (size_t)len) == 0 ? key + len : NULL;
}

static bool is_saved(const struct resharding *r, const char *key, bool blob)
{
    size_t count = 0;
    const struct entry *entry = table_find(&r->published->table, key, &count);
    return entry != NULL && entry->blob == blob;
}

static tck_status_t refuse(const struct resharding *r, const struct record *record)
{
    return error_set(r->err, TCK_ERR_LAYOUT,
                     "\"%.200s\" is each rank's own, and was saved by %" PRIu32 " ranks: there are %" PRIu32 " now",
                     record->key, r->saved_world_size, r->client->oob.world_size);
}

/* Translates a key of this rank's own into that of the saved rank whose state it takes over, if any. */
static tck_status_t find_key(const struct resharding *r, const struct record *record, struct origin *out)
{
    const char *own = own_part(r, record->key);
    snprintf(out->key, sizeof(out->key), "%s", record->key);
    if (own == NULL || same_world(r)) {
        return TCK_OK;
    }
    if (record->reshard == TCK_RESHARD_REFUSE) {
        return refuse(r, record);
    }
    if (record->reshard == TCK_RESHARD_LEAVE) {
        out->source = FROM_NOWHERE;
        return TCK_OK;
    }
    snprintf(out->key, sizeof(out->key), "rank%" PRIu32 "/%s", r->rank, own);
    if (!is_saved(r, out->key, record->blob)) {
        snprintf(out->key, sizeof(out->key), "%s", own);
    }
    return TCK_OK;
}

static struct box box_of(const struct record *record)
{
    struct box box = {.ndim = record->ndim};
    memcpy(box.at, record->offset, sizeof(box.at));
    memcpy(box.size, record->local_shape, sizeof(box.size));
    return box;
}

/* Several ranks have each saved this box as their own. */
static tck_status_t find_among_several(const struct resharding *r, const struct record *record, bool found,
                                       struct origin *out)
{
    if (!same_world(r) && record->reshard == TCK_RESHARD_REFUSE) {
        return refuse(r, record);
    }
    if (!found || (!same_world(r) && record->reshard == TCK_RESHARD_LEAVE)) {
        out->source = FROM_NOWHERE;
        return found || record->reshard != TCK_RESHARD_REFUSE ? TCK_OK : refuse(r, record);
    }
    out->source = FROM_ENTRY;
    return TCK_OK;
}

static tck_status_t find_tensor(const struct resharding *r, const struct record *record, struct origin *out)
{
    const struct box box = box_of(record);
    uint32_t owners = 0;
    bool found = published_own(r->published, out->key, &box, r->rank, &out->entry, &owners);
    if (owners > 1) {
        return find_among_several(r, record, found, out);
    }
    out->source = FROM_BOX;
    if (record->reshard == TCK_RESHARD_LEAVE && !is_saved(r, out->key, false)) {
        out->source = FROM_NOWHERE; /* this rank's own was added since the save */
    }
    return TCK_OK;
}

static tck_status_t find_blob(const struct resharding *r, const struct record *record, struct origin *out)
{
    size_t count = 0;
    const struct entry *entries = table_find(&r->published->table, out->key, &count);
    bool shared = count == 1 && (entries[0].rank == NONE32 || own_part(r, record->key) != NULL);
    out->source = FROM_BLOB;
    out->rank = shared ? -1 : (int)r->rank;
    if (!shared && !same_world(r) && record->reshard == TCK_RESHARD_REFUSE) {
        return refuse(r, record);
    }
    if ((!shared && !same_world(r) && record->reshard == TCK_RESHARD_LEAVE) ||
        (count == 0 && record->reshard == TCK_RESHARD_LEAVE)) {
        out->source = FROM_NOWHERE;
    }
    return TCK_OK;
}

static tck_status_t find(const struct resharding *r, const struct record *record, struct origin *out)
{
    *out = (struct origin){.source = FROM_BOX, .rank = -1};
    tck_status_t status = find_key(r, record, out);
    if (status != TCK_OK || out->source == FROM_NOWHERE) {
        return status;
    }
    return record->blob ? find_blob(r, record, out) : find_tensor(r, record, out);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static tck_status_t pass_on(const struct resharding *r, tck_status_t status)
{
    if (status != TCK_OK) {
        *r->err = r->published->error;
    }
    return status;
}

static tck_published_box_t part_of(const struct record *record, const struct origin *origin)
{
    tck_published_box_t part = {
        .struct_size = sizeof(part), .key = origin->key, .dtype = record->dtype, .ndim = record->ndim};
    memcpy(part.global_shape, record->global_shape, sizeof(part.global_shape));
    memcpy(part.offset, record->offset, sizeof(part.offset));
    memcpy(part.local_shape, record->local_shape, sizeof(part.local_shape));
    return part;
}

static tck_status_t check_box(const struct resharding *r, const struct record *record, const struct origin *origin)
{
    struct tiles slabs = tiles_of(record->local_shape, record->ndim, SCRATCH_BYTES / WIDEST);
    tck_published_box_t part = part_of(record, origin);
    struct box box;
    tck_status_t status = TCK_OK;
    if (record->bytes == 0) {
        return tck_published_read_box(r->published, &part, r->scratch); /* checks that it is the same tensor */
    }
    while (status == TCK_OK && tiles_next(&slabs, &box)) {
        for (uint32_t d = 0; d < box.ndim; d++) {
            part.offset[d] = record->offset[d] + box.at[d];
            part.local_shape[d] = box.size[d];
        }
        status = tck_published_read_box(r->published, &part, r->scratch);
    }
    return status;
}

static tck_status_t check_entry(const struct resharding *r, const struct record *record, uint64_t entry)
{
    tck_published_entry_t saved = {.struct_size = sizeof(saved)};
    tck_status_t status = pass_on(r, tck_published_entry(r->published, entry, &saved));
    if (status == TCK_OK && (saved.dtype != record->dtype || saved.bytes != record->bytes)) {
        return error_set(r->err, TCK_ERR_LAYOUT, "\"%.200s\" was saved as %s", record->key, dtype_name(saved.dtype));
    }
    for (uint64_t at = 0; at < record->bytes && status == TCK_OK; at += SCRATCH_BYTES) {
        uint64_t left = record->bytes - at;
        status = pass_on(r, tck_published_read_entry(r->published, entry, at,
                                                     left < SCRATCH_BYTES ? left : SCRATCH_BYTES, r->scratch));
    }
    return status;
}

/* Reads the blob into the record's own memory, or, with write false, only checks it. */
static tck_status_t read_blob(const struct resharding *r, const struct record *record, const struct origin *origin,
                              bool write)
{
    size_t room = record->bytes - BLOB_PREFIX_BYTES, size = 0;
    uint8_t *bytes = write ? record->addr : malloc(record->bytes);
    if (bytes == NULL) {
        return error_set(r->err, TCK_ERR_NOMEM, "no memory for blob \"%.200s\"", record->key);
    }
    tck_status_t status = pass_on(
        r, tck_published_read_blob(r->published, origin->key, origin->rank, bytes + BLOB_PREFIX_BYTES, room, &size));
    if (status == TCK_OK && write) {
        uint64_t prefix = htole64(size);
        memcpy(bytes, &prefix, sizeof(prefix));
        memset(bytes + BLOB_PREFIX_BYTES + size, 0, room - size);
    }
    if (!write) {
        free(bytes);
    }
    return status;
}

static tck_status_t check(const struct resharding *r, const struct record *record, const struct origin *origin)
{
    switch (origin->source) {
    case FROM_BOX:
        return pass_on(r, check_box(r, record, origin));
    case FROM_ENTRY:
        return check_entry(r, record, origin->entry);
    case FROM_BLOB:
        return read_blob(r, record, origin, false);
    case FROM_NOWHERE:
        break;
    }
    return TCK_OK;
}

/* ---- onto a device, through the scratch memory ----------------------------------------------------------------- */

static tck_status_t write_device(const struct resharding *r, const struct record *record, uint64_t at, uint64_t bytes)
{
    struct device *device = devices_find(&r->client->devices, record->memory);

    return device->ops->write(device, record->device, (uint8_t *)record->addr + at, r->scratch, bytes, r->err);
}

/* The slabs of a record lie one after the other in it. */
static tck_status_t place_box_there(const struct resharding *r, const struct record *record,
                                    const struct origin *origin)
{
    struct tiles slabs = tiles_of(record->local_shape, record->ndim, SCRATCH_BYTES / WIDEST);
    tck_published_box_t part = part_of(record, origin);
    tck_status_t status = TCK_OK;
    uint64_t at = 0;
    struct box box;

    while (status == TCK_OK && tiles_next(&slabs, &box)) {
        uint64_t bytes = box_count(&box) * dtype_bytes(record->dtype);

        for (uint32_t d = 0; d < box.ndim; d++) {
            part.offset[d] = record->offset[d] + box.at[d];
            part.local_shape[d] = box.size[d];
        }
        status = pass_on(r, tck_published_read_box(r->published, &part, r->scratch));
        if (status == TCK_OK) {
            status = write_device(r, record, at, bytes);
        }
        at += bytes;
    }
    return status;
}

static tck_status_t place_entry_there(const struct resharding *r, const struct record *record, uint64_t entry)
{
    tck_status_t status = TCK_OK;

    for (uint64_t at = 0; at < record->bytes && status == TCK_OK; at += SCRATCH_BYTES) {
        uint64_t left = record->bytes - at, bytes = left < SCRATCH_BYTES ? left : SCRATCH_BYTES;

        status = pass_on(r, tck_published_read_entry(r->published, entry, at, bytes, r->scratch));
        if (status == TCK_OK) {
            status = write_device(r, record, at, bytes);
        }
    }
    return status;
}

static tck_status_t place(const struct resharding *r, const struct record *record, const struct origin *origin)
{
    tck_published_box_t part = part_of(record, origin);
    if (record->memory == TCK_CUDA && origin->source == FROM_BOX) {
        return place_box_there(r, record, origin);
    }
    if (record->memory == TCK_CUDA && origin->source == FROM_ENTRY) {
        return place_entry_there(r, record, origin->entry);
    }
    switch (origin->source) {
    case FROM_BOX:
        return pass_on(r, tck_published_read_box(r->published, &part, record->addr));
    case FROM_ENTRY:
        return pass_on(r, tck_published_read_entry(r->published, origin->entry, 0, record->bytes, record->addr));
    case FROM_BLOB:
        return read_blob(r, record, origin, true);
    case FROM_NOWHERE:
        break;
    }
    return TCK_OK;
}

/* ---- keys without a reader --------------------------------------------------------------------------------------- */

static size_t round_count(const struct resharding *r)
{
    return r->key_count / (8 * ROUND_BYTES) + 1;
}

static tck_status_t number_keys(struct resharding *r)
{
    const struct table *table = &r->published->table;
    r->key_numbers = calloc(table->count + 1, sizeof(*r->key_numbers));
    for (size_t i = 0; i < table->count && r->key_numbers != NULL; i++) {
        bool again =
            i > 0 && strcmp(entry_key(table, &table->entries[i - 1]), entry_key(table, &table->entries[i])) == 0;
        r->key_numbers[i] = again ? r->key_count - 1 : r->key_count++;
    }
    r->wanted = calloc(round_count(r), ROUND_BYTES);
    if (r->key_numbers == NULL || r->wanted == NULL) {
        return error_set(r->err, TCK_ERR_NOMEM, "no memory for the keys of %zu entries", table->count);
    }
    return TCK_OK;
}

static void want(const struct resharding *r, const char *key)
{
    size_t count = 0;
    const struct entry *entry = table_find(&r->published->table, key, &count);
    if (entry != NULL) {
        uint32_t number = r->key_numbers[entry - r->published->table.entries];
        r->wanted[number / 8] |= (uint8_t)(1u << number % 8);
    }
}

/* Reduces the ranks' bit sets: afterwards `wanted` has every key that any rank wants. */
static tck_status_t share_wanted(const struct resharding *r)
{
    const struct oob *oob = &r->client->oob;
    uint8_t *all = malloc((size_t)oob->world_size * ROUND_BYTES);
    tck_status_t status =
        all == NULL ? error_set(r->err, TCK_ERR_NOMEM, "no memory for the keys that the ranks want") : TCK_OK;
    for (size_t round = 0; round < round_count(r); round++) {
        uint8_t *mine = r->wanted + round * ROUND_BYTES;
        status = oob_exchange(oob, status, mine, all, ROUND_BYTES, r->err);
        for (size_t i = 0; i < (size_t)oob->world_size * ROUND_BYTES && status == TCK_OK && all != NULL; i++) {
            mine[i % ROUND_BYTES] |= all[i];
        }
        if (status != TCK_OK) {
            break;
        }
    }
    free(all);
    return status;
}

static bool is_old_ranks_own(const struct entry *entry, const char *key)
{
    char prefix[32];
    int len = snprintf(prefix, sizeof(prefix), "rank%" PRIu32 "/", entry->rank);
    return entry->rank != NONE32 && strncmp(key, prefix, (size_t)len) == 0;
}

/* A saved tensor that no rank registers any more means that this is another model, not another sharding of the same
 * one. */
static tck_status_t check_wanted(const struct resharding *r)
{
    if (r->published == NULL || r->wanted == NULL) {
        return error_set(r->err, TCK_ERR_INTERNAL, "the keys were checked before the version was opened");
    }
    const struct table *table = &r->published->table;
    tck_status_t status = share_wanted(r);
    for (size_t i = 0; i < table->count && status == TCK_OK; i++) {
        const char *key = entry_key(table, &table->entries[i]);
        uint32_t number = r->key_numbers[i];
        bool wanted = (r->wanted[number / 8] >> number % 8 & 1) != 0;
        if (!wanted && !table->entries[i].blob && !is_old_ranks_own(&table->entries[i], key)) {
            return error_set(r->err, TCK_ERR_LAYOUT, "\"%.200s\" was saved, and no rank has a place for it", key);
        }
    }
    return status;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static uint64_t record_bytes(const struct layout *layout)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < layout->record_count; i++) {
        bytes += layout->records[i].bytes;
    }
    return bytes;
}

static tck_status_t check_all(struct resharding *r)
{
    const struct layout *layout = &r->client->layout;
    activity_phase(r->activity, "checking another layout on storage", record_bytes(layout));
    for (uint32_t i = 0; i < layout->record_count; i++) {
        struct origin origin;
        tck_status_t status = find(r, &layout->records[i], &origin);
        if (status == TCK_OK) {
            want(r, layout->records[i].key);
            want(r, origin.key);
            status = check(r, &layout->records[i], &origin);
        }
        if (status != TCK_OK) {
            return status == TCK_ERR_NOENT
                       ? error_set(r->err, TCK_ERR_LAYOUT, "\"%.200s\" was not saved", layout->records[i].key)
                       : status;
        }
        activity_add(r->activity, layout->records[i].bytes);
        r->left += origin.source == FROM_NOWHERE;
        r->bytes += origin.source == FROM_NOWHERE ? 0 : layout->records[i].bytes;
    }
    return TCK_OK;
}

static tck_status_t place_all(struct resharding *r)
{
    const struct layout *layout = &r->client->layout;
    tck_status_t status = TCK_OK;
    activity_phase(r->activity, "reading another layout from storage", record_bytes(layout));
    for (uint32_t i = 0; i < layout->record_count && status == TCK_OK; i++) {
        struct origin origin;
        status = find(r, &layout->records[i], &origin);
        if (status == TCK_OK) {
            status = place(r, &layout->records[i], &origin);
            activity_add(r->activity, layout->records[i].bytes);
        }
    }
    return status;
}

/* Reads the blobs alone, for the trainer's check, before anything else is changed. */
static tck_status_t consult(const struct resharding *r, struct tck_client *client)
{
    const struct layout *layout = &client->layout;
    tck_status_t status = TCK_OK;
    for (uint32_t i = 0; i < layout->record_count && status == TCK_OK; i++) {
        struct origin origin;
        if (!layout->records[i].blob) {
            continue;
        }
        status = find(r, &layout->records[i], &origin);
        if (status == TCK_OK && origin.source == FROM_NOWHERE) {
            memset(layout->records[i].addr, 0,
                   BLOB_PREFIX_BYTES); /* the trainer's current blobs are not the saved ones */
        } else if (status == TCK_OK) {
            status = place(r, &layout->records[i], &origin);
        }
    }
    return status == TCK_OK ? client_ask_trainer(client, r->err) : status;
}

static tck_status_t name_version(tck_status_t status, struct version version, struct error *err)
{
    return status == TCK_OK
               ? TCK_OK
               : error_prefix(err, "version %" PRIu64 ".%" PRIu64 " has another layout", version.term, version.step);
}

static tck_status_t open_version(struct resharding *r, struct version version, bool files_unseen)
{
    if (r->scratch == NULL) {
        r->scratch = malloc(SCRATCH_BYTES);
    }
    if (r->scratch == NULL) {
        return error_set(r->err, TCK_ERR_NOMEM, "no memory to read a version");
    }
    const struct config *config = &r->client->session.config;
    tck_status_t status = published_begin(config, version, files_unseen, &r->published, r->err);
    if (status == TCK_ERR_NOENT) { /* the agents have just seen it: this is no job that has saved nothing */
        status = r->err->code = TCK_ERR_CORRUPT;
    }
    return name_version(status, version, r->err);
}

static tck_status_t prepare(struct resharding *r, struct version version)
{
    if (r->published == NULL) {
        return error_set(r->err, TCK_ERR_INTERNAL, "another layout was prepared before the version was opened");
    }
    r->saved_world_size = r->published->found.manifest.world_size;
    r->rank = r->client->oob.rank % r->saved_world_size;
    tck_status_t status = number_keys(r);
    if (status == TCK_OK) {
        status = check_all(r);
    }
    if (status == TCK_OK && r->client->torn && r->left > 0) {
        status = error_set(r->err, TCK_ERR_LAYOUT,
                           "%" PRIu32 " records and blobs of this rank would be left as they are, and they hold parts "
                           "of another version",
                           r->left);
    }
    return name_version(status, version, r->err);
}

/* Whether looking at all files may find the version whole in another directory. A file that cannot be opened (DENIED,
 * IO) may have been replaced by a link or the like, which is damage, too. All ranks have failed, maybe with different
 * errors, and get the same answer. */
static bool may_be_elsewhere(const struct resharding *r, tck_status_t status)
{
    const struct oob *oob = &r->client->oob;
    struct error ignored;
    bool damage = status == TCK_ERR_CORRUPT || status == TCK_ERR_DENIED || status == TCK_ERR_IO;
    uint8_t mine = damage && config_second_dir(&r->client->session.config)[0] != '\0';
    uint8_t *all = calloc(oob->world_size, 1);
    tck_status_t room = all == NULL ? error_set(&ignored, TCK_ERR_NOMEM, "no memory for answers") : TCK_OK;
    bool any = false;
    if (oob_exchange(oob, room, &mine, all, sizeof(mine), &ignored) == TCK_OK) {
        for (uint32_t i = 0; i < oob->world_size; i++) {
            any = any || all[i] != 0;
        }
    }
    free(all);
    return any;
}

/* What a former attempt has found. */
static void forget(struct resharding *r)
{
    tck_published_close(r->published);
    free(r->key_numbers);
    free(r->wanted);
    r->published = NULL;
    r->key_numbers = NULL;
    r->wanted = NULL;
    r->key_count = r->left = 0;
    r->bytes = 0;
}

static tck_status_t open_and_check(struct resharding *r, struct version version, bool files_unseen)
{
    const struct oob *oob = &r->client->oob;
    forget(r);
    tck_status_t status = open_version(r, version, files_unseen);
    status = shared_headers_read(oob, status, r->published, r->err);
    return status == TCK_OK ? oob_agree(oob, prepare(r, version), r->err) : status;
}

/* The agents have looked at all files before they named the version, so each rank opens only those that it needs:
 * otherwise lookups would grow with the square of the ranks. If one is missing or damaged, each rank looks at all of
 * them, because another directory may have the same version whole. */
static tck_status_t find_whole(struct resharding *r, struct version version)
{
    tck_status_t status = open_and_check(r, version, true);
    bool again = status != TCK_OK && may_be_elsewhere(r, status);
    return again ? open_and_check(r, version, false) : status;
}

tck_status_t client_reshard(struct tck_client *client, struct version version, tck_restored_t *out, struct error *err)
{
    struct resharding r = {.client = client, .activity = &client->activity, .err = err};
    tck_status_t status = find_whole(&r, version);
    if (status == TCK_OK) {
        status = check_wanted(&r); /* the same on all ranks */
    }
    if (status == TCK_OK && client->check != NULL) {
        status = oob_agree(&client->oob, consult(&r, client), err);
    }
    if (status == TCK_OK) {
        client->torn = true;
        status = oob_agree(&client->oob, place_all(&r), err);
        client->torn = status != TCK_OK;
    }
    if (status == TCK_OK) {
        log_info("rank %" PRIu32 ": version %" PRIu64 ".%" PRIu64 " of %" PRIu32 " ranks was resharded, %" PRIu32
                 " records and blobs were left as they are",
                 client->oob.rank, version.term, version.step, r.saved_world_size, r.left);
        *out = (tck_restored_t){.struct_size = out->struct_size,
                                .version = {version.term, version.step},
                                .bytes_storage = r.bytes,
                                .resharded = 1,
                                .saved_world_size = r.saved_world_size,
                                .left_count = r.left};
    }
    forget(&r);
    free(r.scratch);
    return status;
}
