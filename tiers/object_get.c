/* SPDX-License-Identifier: Apache-2.0
 * Reads a shard file of a store of objects into a slot, several ranges at once. */
#include "tiers/object_transfer.h"
#include "tiers/persistent_objects.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define RANGE_CHUNKS     2u /* 8 MiB */
#define RANGES_IN_FLIGHT 8u

struct get {
    struct transfer t; /* first */
    struct tier_item *item;
    struct folder_file file;
    tier_done_fn *done;
    void *ctx;
};

static uint32_t range_end(const struct get *op, uint32_t i)
{
    uint32_t chunks = chunk_count(op->item->image_bytes), end = (i + 1) * RANGE_CHUNKS;
    return end < chunks ? end : chunks;
}

static tck_status_t range_step(struct transfer *t, uint32_t i, struct error *err)
{
    struct get *op = (struct get *)t;
    struct tier_item *item = op->item;
    uint32_t chunks = chunk_count(item->image_bytes), end = range_end(op, i);
    uint64_t begin = (uint64_t)i * RANGE_CHUNKS * CHUNK_BYTES;
    uint64_t bytes = (end == chunks ? item->image_bytes : (uint64_t)end * CHUNK_BYTES) - begin;
    tck_status_t status = folder_file_read(&op->file, begin, item->image + begin, bytes, err);
    for (uint32_t c = i * RANGE_CHUNKS; c < end && status == TCK_OK; c++) {
        item->crcs[c] = chunk_crc(item->image, item->image_bytes, c);
    }
    return status == TCK_OK ? TCK_OK
                            : error_prefix(err, "%s: %" PRIu64 " bytes at %" PRIu64, op->file.name, bytes, begin);
}

static void range_stepped(struct transfer *t, uint32_t i)
{
    const struct get *op = (const struct get *)t;
    const struct tier_watch *watch = op->item->watch;
    for (uint32_t c = i * RANGE_CHUNKS; watch != NULL && c < range_end(op, i); c++) {
        watch->chunk(watch->ctx, c);
    }
}

static void ended(struct transfer *t)
{
    struct get *op = (struct get *)t;
    struct persistent *p = t->p;
    op->done(op->ctx, &t->outcome);
    folder_file_close(&op->file);
    free(op);
    persistent_unref(p);
}

/* NOLINTNEXTLINE(readability-function-size): source, destination, and the callback */
tck_status_t objects_read_file(struct persistent *p, const struct folder *dir, const char *name, struct tier_item *item,
                               tier_done_fn *done, void *ctx, struct error *err)
{
    uint32_t chunks = chunk_count(item->image_bytes);
    struct get *op = calloc(1, sizeof(*op));
    if (op == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "%s: no memory for a get", name);
    }
    *op = (struct get){.item = item, .file = FOLDER_FILE_NONE, .done = done, .ctx = ctx};
    op->t = (struct transfer){.p = p,
                              .progress = item->progress,
                              .count = (chunks + RANGE_CHUNKS - 1) / RANGE_CHUNKS,
                              .width = RANGES_IN_FLIGHT,
                              .step = range_step,
                              .stepped = range_stepped,
                              .ended = ended};
    tck_status_t status = folder_open_file(dir, name, &op->file, err);
    if (status == TCK_OK) {
        status = transfer_start(&op->t, err);
    }
    if (status != TCK_OK) {
        folder_file_close(&op->file);
        free(op);
        return status;
    }
    persistent_ref(p);
    return TCK_OK;
}
