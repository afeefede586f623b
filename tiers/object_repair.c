/* SPDX-License-Identifier: Apache-2.0
 * Rebuilds a damaged object of a published version: good chunks are read from the object itself, the others come from
 * memory, each only if it matches its digest in the manifest. The new object takes the old one's place as a whole, once
 * the server has all its parts. */
#include "tiers/object_parts.h"
#include "tiers/persistent_objects.h"

#include "tiers/published_chunk.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHAT_BYTES (DIR_NAME_MAX + MANIFEST_FILE_NAME)

struct repair {
    const struct manifest_file *file;
    const uint8_t *image;
    struct folder dir;
    struct folder_file old;
    struct object_parts split;
    uint8_t *buffer; /* of one part */
    struct object_upload upload;
    struct object_part *parts;
};

static bool is_good(const struct repair *m, const uint8_t *bytes, uint32_t i)
{
    return crc32c(0, bytes, chunk_size(m->file->bytes, i)) == m->file->crcs[i];
}

/* The slot may be reused at any moment, so the copy is checked, not the slot. A read error counts as wrong bytes. */
static tck_status_t gather_chunk(const struct repair *m, uint32_t i, uint8_t *to, struct error *err)
{
    struct published_chunk chunk = published_chunk_of(m->file, i);
    struct error ignored;
    if (published_chunk_read(&m->old, &chunk, to, &ignored) == TCK_OK) {
        return TCK_OK;
    }
    memcpy(to, m->image + (uint64_t)i * CHUNK_BYTES, chunk.bytes);
    return is_good(m, to, i) ? TCK_OK
                             : error_set(err, TCK_ERR_CORRUPT, "memory has no good chunk %" PRIu32 " either", i);
}

static tck_status_t send_part(struct repair *m, uint32_t part, struct error *err)
{
    struct object_store *store = object_folder_store(m->dir.objects);
    const struct object_slice slice = object_parts_slice(&m->split, part);
    uint32_t crc = crc32c_of_chunks(m->file->crcs, m->file->bytes, slice.first, slice.chunks);
    const struct object_bytes value = {.data = m->buffer, .bytes = slice.bytes, .crc32c = &crc};
    tck_status_t status = TCK_OK;
    for (uint32_t i = 0; i < slice.chunks && status == TCK_OK; i++) {
        status = gather_chunk(m, slice.first + i, m->buffer + (uint64_t)i * CHUNK_BYTES, err);
    }
    return status == TCK_OK ? store->ops->upload_part(store, object_folder_call(m->dir.objects), &m->upload, part + 1,
                                                      &value, &m->parts[part], err)
                            : status;
}

static tck_status_t send_parts(struct repair *m, struct error *err)
{
    struct object_store *store = object_folder_store(m->dir.objects);
    const struct object_call *call = object_folder_call(m->dir.objects);
    struct error ignored;
    char key[OBJECT_KEY_MAX];
    tck_status_t status = object_folder_key(m->dir.objects, m->file->name, key, err);
    if (status == TCK_OK) {
        status = store->ops->upload_begin(store, call, key, &m->upload, err);
    }
    if (status != TCK_OK) {
        return status;
    }
    for (uint32_t i = 0; i < m->split.count && status == TCK_OK; i++) {
        status = send_part(m, i, err);
    }
    if (status == TCK_OK) {
        status = store->ops->upload_finish(store, call, &m->upload, m->parts, m->split.count, err);
    }
    if (status == TCK_OK || m->upload.id == NULL) {
        return status;
    }
    (void)store->ops->upload_abort(store, call, &m->upload, &ignored); /* else a later term's sweep does it */
    return status;
}

static tck_status_t rebuild(struct persistent *p, const char *version, struct repair *m, struct error *err)
{
    m->split = object_parts_of(m->file->bytes);
    m->buffer = malloc((size_t)m->split.chunks_each * CHUNK_BYTES);
    m->parts = calloc(m->split.count, sizeof(*m->parts));
    if (m->buffer == NULL || m->parts == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory to repair with");
    }
    tck_status_t status = folder_open(&p->job, version, &m->dir, err);
    if (status == TCK_OK) {
        status = folder_open_file(&m->dir, m->file->name, &m->old, err);
    }
    return status == TCK_OK ? send_parts(m, err) : status;
}

tck_status_t objects_repair(struct persistent *p, const struct published *which, const struct manifest_file *file,
                            const uint8_t *image, struct error *err)
{
    char name[DIR_NAME_MAX], what[WHAT_BYTES];
    struct repair m = {.file = file, .image = image, .dir = FOLDER_NONE, .old = FOLDER_FILE_NONE};
    struct error outcome = {0};
    version_dir_name(which->version, name);
    snprintf(what, sizeof(what), "%s/%s", name, file->name);
    if (which->from_second) {
        return error_set(err, TCK_ERR_DENIED, "repair %s: it is not in save_dir, and only files there are repaired",
                         what);
    }
    tck_status_t status = audit_intent(p->audit, AUDIT_REPAIR, what, err);
    if (status != TCK_OK) {
        return error_prefix(err, "repair %s", what);
    }
    outcome.code = rebuild(p, name, &m, &outcome);
    audit_result(p->audit, AUDIT_REPAIR, what, &outcome);
    folder_file_close(&m.old);
    folder_close(&m.dir);
    free(m.buffer);
    free(m.parts);
    return outcome.code == TCK_OK ? TCK_OK : error_set(err, outcome.code, "repair %s: %s", what, outcome.text);
}
