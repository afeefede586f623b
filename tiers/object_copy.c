/* SPDX-License-Identifier: Apache-2.0
 * Copies a file of a published version into a store of objects: in parts, each read from the source, checked against
 * the manifest, and sent with its CRC. The object appears whole or not at all, and is no version before the manifest is
 * there. */
#include "tiers/persistent_objects.h"

#include "tiers/published_chunk.h"
#include <stdio.h>
#include <stdlib.h>

#define PART_CHUNKS 4u /* 16 MiB */
#define PARTS_MAX   10000u
#define WHAT_BYTES  (DIR_NAME_MAX + MANIFEST_FILE_NAME)

struct copy {
    const struct copy_source *source;
    struct persistent *p;
    struct folder dir; /* the version's */
    uint32_t part_chunks;
    uint8_t *buffer; /* of one part */
    struct object_upload upload;
    struct object_part *parts;
};

static tck_status_t send_part(struct copy *c, uint32_t part, struct error *err)
{
    const struct manifest_file *file = c->source->file;
    struct object_store *store = object_folder_store(c->dir.objects);
    uint32_t chunks = chunk_count(file->bytes), first = part * c->part_chunks;
    uint32_t count = chunks - first < c->part_chunks ? chunks - first : c->part_chunks;
    uint32_t crc = crc32c_of_chunks(file->crcs, file->bytes, first, count);
    struct object_bytes value = {.data = c->buffer, .crc32c = &crc};
    tck_status_t status = TCK_OK;
    for (uint32_t i = first; i < first + count && status == TCK_OK; i++) {
        struct published_chunk chunk = published_chunk_of(file, i);
        status = copy_read(c->p, c->source, &chunk, c->buffer + value.bytes, err);
        value.bytes += chunk.bytes;
        if (status == TCK_OK) {
            status = copy_goes_on(c->p, c->source, err);
        }
    }
    if (status != TCK_OK) {
        return status;
    }
    status = store->ops->upload_part(store, object_folder_call(c->dir.objects), &c->upload, part + 1, &value,
                                     &c->parts[part], err);
    return status == TCK_ERR_CORRUPT ? (err->code = TCK_ERR_IO) : status; /* what was read is good */
}

static tck_status_t send_parts(struct copy *c, uint32_t count, struct error *err)
{
    struct object_store *store = object_folder_store(c->dir.objects);
    const struct object_call *call = object_folder_call(c->dir.objects);
    struct error ignored;
    char key[OBJECT_KEY_MAX];
    tck_status_t status = object_folder_key(c->dir.objects, c->source->file->name, key, err);
    if (status == TCK_OK) {
        status = store->ops->upload_begin(store, call, key, &c->upload, err);
    }
    if (status != TCK_OK) {
        return status;
    }
    for (uint32_t i = 0; i < count && status == TCK_OK; i++) {
        status = send_part(c, i, err);
    }
    if (status == TCK_OK) {
        status = store->ops->upload_finish(store, call, &c->upload, c->parts, count, err);
    }
    if (status != TCK_OK && c->upload.id != NULL) {
        (void)store->ops->upload_abort(store, call, &c->upload, &ignored); /* else a later sweep does it */
    }
    return status;
}

static tck_status_t send(struct copy *c, struct error *err)
{
    uint32_t chunks = chunk_count(c->source->file->bytes), least = (chunks + PARTS_MAX - 1) / PARTS_MAX;
    c->part_chunks = least > PART_CHUNKS ? least : PART_CHUNKS;
    uint32_t count = (chunks + c->part_chunks - 1) / c->part_chunks;
    uint32_t buffered = chunks < c->part_chunks ? chunks : c->part_chunks;
    c->buffer = malloc((size_t)buffered * CHUNK_BYTES);
    c->parts = calloc(count, sizeof(*c->parts));
    tck_status_t status = c->buffer == NULL || c->parts == NULL
                              ? error_set(err, TCK_ERR_NOMEM, "no memory to copy with")
                              : send_parts(c, count, err);
    if (status == TCK_OK && c->p->unchecked && c->p->config->storage_verify == SWITCH_ON) {
        status = copy_check(c->p, &c->dir, c->source->file->name, c->source, err);
        status = status == TCK_ERR_CORRUPT ? (err->code = TCK_ERR_IO) : status;
    }
    free(c->buffer);
    free(c->parts);
    return status;
}

/* An earlier process of this agent may have copied it. */
static bool is_there(const struct copy *c)
{
    const struct manifest_file *file = c->source->file;
    struct error ignored;
    return version_check_file(&c->dir, file, &ignored) == TCK_OK &&
           copy_check(c->p, &c->dir, file->name, c->source, &ignored) == TCK_OK;
}

tck_status_t objects_copy(struct persistent *p, const struct copy_source *source, struct error *err)
{
    char name[DIR_NAME_MAX], what[WHAT_BYTES];
    struct copy c = {.source = source, .p = p, .dir = FOLDER_NONE};
    struct error outcome = {0};
    version_dir_name(source->version, name);
    snprintf(what, sizeof(what), "%s/%s", name, source->file->name);
    tck_status_t status = folder_open(&p->job, name, &c.dir, err);
    if (status == TCK_OK && !is_there(&c)) {
        status = audit_intent(p->audit, AUDIT_WRITE, what, err);
        if (status == TCK_OK) {
            outcome.code = send(&c, &outcome);
            audit_result(p->audit, AUDIT_WRITE, what, &outcome);
            *err = outcome;
            status = outcome.code;
        }
    }
    folder_close(&c.dir);
    return status;
}
