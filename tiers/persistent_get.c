/* SPDX-License-Identifier: Apache-2.0
 * Reads published versions: one shard into a slot, or all shards through one buffer to verify them. Nothing read counts
 * before its chunks and root have been compared with the manifest. */
#include "tiers/persistent_dir.h"
#include "tiers/persistent_objects.h"

#include "tiers/published_chunk.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- find ------------------------------------------------------------------------------------------------------ */

/* A version's directory and its manifest, or why they cannot be read. */
struct opened {
    struct folder dir;
    struct manifest manifest;
    struct error outcome;
};

static struct opened open_published(const struct persistent *p, const struct published *which)
{
    struct version_dirs dirs = persistent_dirs(p);
    struct opened o = {.dir = FOLDER_NONE};
    o.outcome.code = version_open(&dirs, which, &o.dir, &o.outcome);
    if (o.outcome.code == TCK_OK) {
        o.outcome.code = version_manifest(&o.dir, dirs.job, which->version, &o.manifest, &o.outcome);
    }
    return o;
}

static void opened_free(struct opened *o)
{
    folder_close(&o->dir);
    manifest_free(&o->manifest);
}

/* The manifest is not kept, so the CRCs are copied. */
static tck_status_t take_file(const struct manifest_file *from, struct manifest_file *out, struct error *err)
{
    size_t bytes = chunk_count(from->bytes) * sizeof(*from->crcs);
    uint32_t *crcs = malloc(bytes);
    if (crcs == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the CRCs of %s", from->name);
    }
    memcpy(crcs, from->crcs, bytes);
    *out = *from;
    out->crcs = crcs;
    return TCK_OK;
}

/* checked: the file must be there and have its size. */
static void find_in(const struct opened *o, const struct published *which, bool checked, struct found_file *out)
{
    out->outcome = o->outcome;
    if (o->outcome.code != TCK_OK) {
        return;
    }
    const struct manifest_file *file = manifest_find(&o->manifest, out->shard);
    tck_status_t status = TCK_OK;
    if (file == NULL) {
        status = error_set(&out->outcome, TCK_ERR_NOENT, "it does not contain that shard");
    } else if (checked) {
        status = version_check_file(&o->dir, file, &out->outcome);
    }
    if (status == TCK_OK) {
        out->outcome.code = take_file(file, &out->file, &out->outcome);
        out->which = *which;
    }
}

/* A version that cannot be read in the second place may be the only copy, so that error outweighs its absence from
 * save_dir. */
static bool outweighs(const struct error *loaded, const struct error *saved)
{
    return loaded->code == TCK_OK || (status_proves_damage(saved->code) && !status_proves_damage(loaded->code));
}

/* Two versions of one name are copies of each other, unless save_dir was replaced by an older copy of itself and its
 * terms were counted from there. Files of both together would be no version. */
static void check_same(const struct opened *saved, struct found_file *loaded)
{
    const struct manifest_file *own =
        saved->outcome.code == TCK_OK ? manifest_find(&saved->manifest, loaded->shard) : NULL;
    if (own == NULL || loaded->outcome.code != TCK_OK || hash128_is(own->root, loaded->file.root)) {
        return;
    }
    free(loaded->file.crcs);
    loaded->file = (struct manifest_file){0};
    (void)error_set(&loaded->outcome, TCK_ERR_CORRUPT,
                    "%s: the version of this name in the second place has other content than that in save_dir",
                    own->name);
}

static void find_in_second(const struct persistent *p, const struct opened *saved, struct version version,
                           struct found_file *files, uint32_t count)
{
    struct published which = {.version = version, .from_second = true};
    struct opened o = open_published(p, &which);
    for (uint32_t i = 0; i < count; i++) {
        struct found_file loaded = {.shard = files[i].shard};
        if (files[i].outcome.code != TCK_OK) {
            find_in(&o, &which, true, &loaded);
            check_same(saved, &loaded);
            files[i] = outweighs(&loaded.outcome, &files[i].outcome) ? loaded : files[i];
        }
    }
    opened_free(&o);
}

/* An archive that cannot be reached may have what save_dir lacks. */
static void find_beside(struct persistent *p, const struct opened *saved, struct version version,
                        struct found_file *files, uint32_t count)
{
    struct error away;
    if (second_find(p, &away) != TCK_OK) {
        for (uint32_t i = 0; i < count; i++) {
            files[i].outcome = status_proves_damage(files[i].outcome.code) ? away : files[i].outcome;
        }
    } else if (folder_is(second_place(p))) {
        find_in_second(p, saved, version, files, count);
    }
}

void persistent_find(struct persistent *p, struct version version, struct found_file *files, uint32_t count)
{
    struct published which = {.version = version};
    struct opened o = open_published(p, &which);
    /* A file that is missing in save_dir may be in the second place. Where there is none, a look at it is left to
     * persistent_get, which opens it anyway: a node asks for all its shards, of which others may read some. */
    bool elsewhere = p->config->archive_dir[0] != '\0' || folder_is(second_place(p));
    bool checked = elsewhere || o.dir.objects != NULL;
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        find_in(&o, &which, checked, &files[i]);
        found += files[i].outcome.code == TCK_OK;
    }
    if (found < count && elsewhere) {
        find_beside(p, &o, version, files, count);
    }
    opened_free(&o);
    for (uint32_t i = 0; i < count; i++) {
        files[i].outcome.code = name_version(files[i].outcome.code, version, &files[i].outcome);
    }
}

/* ---- get ------------------------------------------------------------------------------------------------------- */

struct get {
    struct persistent *p;
    struct published which;
    const struct manifest_file *file;
    struct tier_item *item;
    tier_done_fn *done;
    void *ctx;
    struct folder dir;
    struct error outcome;
};

static void get_finish(struct get *op)
{
    op->outcome.code = name_version(op->outcome.code, op->which.version, &op->outcome);
    folder_close(&op->dir);
    op->done(op->ctx, &op->outcome);
    persistent_unref(op->p);
    free(op);
}

static tck_status_t check_item(struct tier_item *item, const struct manifest_file *file, struct error *err)
{
    for (uint32_t i = 0; i < chunk_count(file->bytes); i++) {
        struct published_chunk chunk = published_chunk_of(file, i);
        tck_status_t status = published_chunk_check(&chunk, item->crcs[i], err);
        if (status != TCK_OK) {
            return status;
        }
    }
    struct hash128 root = digest_root(item->crcs, file->bytes);
    if (!hash128_is(root, file->root)) {
        return error_set(err, TCK_ERR_CORRUPT, "%s: its root does not match the manifest", file->name);
    }
    item->root = root;
    return TCK_OK;
}

static void get_read(void *ctx, const struct error *outcome)
{
    struct get *op = ctx;
    op->outcome = *outcome;
    if (outcome->code == TCK_OK) {
        op->outcome.code = check_item(op->item, op->file, &op->outcome);
    }
    get_finish(op);
}

static void get_open(void *ctx)
{
    struct get *op = ctx;
    progress_begin(op->item->progress);
    op->outcome.code = op->which.from_second ? second_find(op->p, &op->outcome) : TCK_OK;
    if (op->outcome.code == TCK_OK) {
        struct version_dirs dirs = persistent_dirs(op->p);
        op->outcome.code = version_open(&dirs, &op->which, &op->dir, &op->outcome);
    }
    progress_end(op->item->progress);
}

static void get_opened(void *ctx, bool canceled)
{
    struct get *op = ctx;
    struct persistent *p = op->p;
    tck_status_t status = op->outcome.code;
    if (canceled || p->closing) {
        status = error_set(&op->outcome, TCK_ERR_CANCELED, "the persistent tier is closing");
    }
    if (status == TCK_OK) {
        status = op->dir.objects != NULL
                     ? objects_read_file(p, &op->dir, op->file->name, op->item, get_read, op, &op->outcome)
                     : dir_read_file(p, op->dir.fd, op->file->name, op->item, get_read, op, &op->outcome);
    }
    if (status != TCK_OK) {
        get_finish(op);
    }
}

static tck_status_t check_request(const struct persistent *p, const struct manifest_file *file,
                                  const struct tier_item *item, struct error *err)
{
    if (p->closing) {
        return error_set(err, TCK_ERR_CANCELED, "get: the persistent tier is closing");
    }
    if (p->loop == NULL) {
        return error_set(err, TCK_ERR_INVAL, "%s: it cannot be read without an event loop", file->name);
    }
    if (item->image_bytes != file->bytes) {
        return error_set(err, TCK_ERR_INVAL, "%s has %" PRIu64 " bytes, its slot %" PRIu64, file->name, file->bytes,
                         item->image_bytes);
    }
    if (!hash128_is(item->root, (struct hash128){0, 0}) && !hash128_is(item->root, file->root)) {
        return error_set(err, TCK_ERR_CORRUPT, "%s: the root in the manifest is not the expected one", file->name);
    }
    return TCK_OK;
}

/* NOLINTNEXTLINE(readability-function-size): source, destination, and the callback */
tck_status_t persistent_get(struct persistent *p, const struct published *which, const struct manifest_file *file,
                            struct tier_item *item, tier_done_fn *done, void *ctx, struct error *err)
{
    tck_status_t status = check_request(p, file, item, err);
    if (status != TCK_OK) {
        return status;
    }
    struct get *op = calloc(1, sizeof(*op));
    if (op == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "%s: no memory for a get", file->name);
    }
    *op =
        (struct get){.p = p, .which = *which, .file = file, .item = item, .done = done, .ctx = ctx, .dir = FOLDER_NONE};
    status = pool_submit(p->pool, get_open, get_opened, op);
    if (status != TCK_OK) {
        free(op);
        return error_set(err, status, "%s: start a get", file->name);
    }
    persistent_ref(p);
    return TCK_OK;
}

/* ---- verify ---------------------------------------------------------------------------------------------------- */

struct chunk_range {
    uint32_t first, end; /* end - 1 is the last */
};

/* Through the page cache, but from the device: cached pages would show what was written, not what is on the device. */
static tck_status_t verify_chunks(const struct persistent *p, const struct folder *dir,
                                  const struct manifest_file *file, struct chunk_range range, uint8_t *buffer,
                                  struct error *err)
{
    struct folder_file opened;
    tck_status_t status = folder_open_file(dir, file->name, &opened, err);
    if (status != TCK_OK) {
        return status;
    }
    folder_file_forget_cached(&opened); /* if the hint is ignored, the check is weaker */
    for (uint32_t i = range.first; i < range.end && i < chunk_count(file->bytes) && status == TCK_OK; i++) {
        struct published_chunk chunk = published_chunk_of(file, i);
        status = published_chunk_read(&opened, &chunk, buffer, err);
        persistent_came_further(p);
    }
    folder_file_forget_cached(&opened); /* these pages are not needed again */
    folder_file_close(&opened);
    return status;
}

static uint64_t largest_file(const struct manifest *manifest)
{
    uint64_t bytes =
        manifest->metadata.bytes > manifest->index.bytes ? manifest->metadata.bytes : manifest->index.bytes;
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        bytes = manifest->files[i].bytes > bytes ? manifest->files[i].bytes : bytes;
    }
    return bytes;
}

/* A version without .metadata or .index can still be restored; but it is not whole. */
static tck_status_t verify_beside(const struct persistent *p, const struct folder *dir,
                                  const struct manifest_file *file, uint8_t *buffer, struct error *err)
{
    tck_status_t status = version_check_file(dir, file, err);
    if (status == TCK_OK) {
        status = verify_chunks(p, dir, file, (struct chunk_range){0, chunk_count(file->bytes)}, buffer, err);
    }
    return status;
}

static tck_status_t verify_dir(const struct persistent *p, const struct folder *dir, struct version version,
                               struct error *err)
{
    struct manifest manifest;
    tck_status_t status = version_manifest(dir, p->config->job, version, &manifest, err);
    if (status != TCK_OK) {
        return status;
    }
    uint8_t *buffer = persistent_buffer(largest_file(&manifest));
    status = buffer == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory to verify with")
                            : version_check_files(dir, &manifest, err);
    for (uint32_t i = 0; i < manifest.file_count && status == TCK_OK; i++) {
        const struct manifest_file *file = &manifest.files[i];
        status = verify_chunks(p, dir, file, (struct chunk_range){0, chunk_count(file->bytes)}, buffer, err);
    }
    if (status == TCK_OK && manifest.metadata.bytes > 0) {
        status = verify_beside(p, dir, &manifest.metadata, buffer, err);
    }
    if (status == TCK_OK && manifest.index.bytes > 0) {
        status = verify_beside(p, dir, &manifest.index, buffer, err);
    }
    free(buffer);
    manifest_free(&manifest);
    return status;
}

tck_status_t persistent_verify(struct persistent *p, const struct published *which, struct error *err)
{
    struct version_dirs dirs = persistent_dirs(p);
    struct folder dir;
    tck_status_t status = version_open(&dirs, which, &dir, err);
    if (status == TCK_OK) {
        status = verify_dir(p, &dir, which->version, err);
        folder_close(&dir);
    }
    return name_version(status, which->version, err);
}

/* NOLINTNEXTLINE(readability-function-size): the file and its range of chunks */
tck_status_t persistent_verify_part(struct persistent *p, const struct published *which,
                                    const struct manifest_file *file, uint32_t first, uint32_t end, struct error *err)
{
    struct version_dirs dirs = persistent_dirs(p);
    struct folder dir;
    uint8_t *buffer = persistent_buffer(file->bytes);
    if (buffer == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory to verify with");
    }
    tck_status_t status = version_open(&dirs, which, &dir, err);
    if (status == TCK_OK) {
        status = verify_chunks(p, &dir, file, (struct chunk_range){first, end}, buffer, err);
        folder_close(&dir);
    }
    free(buffer);
    return name_version(status, which->version, err);
}
