/* SPDX-License-Identifier: Apache-2.0
 * Streams, events and buffers of one device. */
#include "client/cuda_device.h"

#include <stdlib.h>

#define ASIDE_ALIGN 64

/* Turns the error number of a CUDA call into a status with text; 0 is no error. */
static tck_status_t explain(const struct cuda_device *dev, int rc, const char *what, struct error *err)
{
    if (rc == 0) {
        return TCK_OK;
    }
    return error_set(err, TCK_ERR_IO, "CUDA device %d: %s: %s", dev->device, what, dev->calls->error_text(rc));
}

static tck_status_t enter_device(const struct cuda_device *dev, struct cuda_place *before, struct error *err)
{
    if (dev->broken) {
        return error_set(err, TCK_ERR_IO, "CUDA device %d has failed and is no longer used", dev->device);
    }
    return explain(dev, dev->calls->enter(dev->device, before), "cannot be used", err);
}

/* ---- made and freed ------------------------------------------------------------------------------------------ */

static int make_streams(struct cuda_device *dev)
{
    const struct cuda_calls *calls = dev->calls;
    int rc = calls->event_new(&dev->ready);

    if (rc == 0) {
        rc = calls->event_new(&dev->known);
    }
    if (rc == 0) {
        rc = calls->event_new(&dev->done);
    }
    for (int i = 0; i < LANE_SIDES && rc == 0; i++) {
        rc = calls->stream_new(&dev->sides[i].stream);
        if (rc == 0) {
            rc = calls->event_new(&dev->sides[i].passed);
        }
    }
    return rc;
}

tck_status_t cuda_device_open(struct cuda_device *dev, const struct cuda_calls *calls, int device, struct error *err)
{
    struct cuda_place before;
    tck_status_t status;

    *dev = (struct cuda_device){.calls = calls, .device = device};
    status = enter_device(dev, &before, err);
    if (status != TCK_OK) {
        *dev = (struct cuda_device){0};
        return status;
    }
    status = explain(dev, make_streams(dev), "make streams and events", err);
    calls->leave(&before);
    if (status != TCK_OK) {
        cuda_device_close(dev);
    }
    return status;
}

static void free_list(const struct cuda_device *dev, struct copy_plan *list)
{
    if (list->table != NULL) {
        dev->calls->device_free(list->table);
    }
    copy_plan_free(list);
}

static void free_lists(const struct cuda_device *dev, struct copy_plan **lists)
{
    for (uint32_t i = 0; i < dev->list_count && *lists != NULL; i++) {
        free_list(dev, &(*lists)[i]);
    }
    free(*lists);
    *lists = NULL;
}

static void free_digests(struct cuda_device *dev)
{
    for (uint32_t i = 0; i < dev->list_count && dev->digests != NULL; i++) {
        device_digest_free(&dev->digests[i], dev->calls);
    }
    free(dev->digests);
    dev->digests = NULL;
}

static void free_streams(struct cuda_device *dev)
{
    const struct cuda_calls *calls = dev->calls;

    for (int i = 0; i < LANE_SIDES; i++) {
        struct side *side = &dev->sides[i];

        if (side->buffer != NULL) {
            calls->device_free(side->buffer);
        }
        if (side->passed != NULL) {
            calls->event_free(side->passed);
        }
        if (side->stream != NULL) {
            calls->stream_free(side->stream);
        }
    }
    if (dev->done != NULL) {
        calls->event_free(dev->done);
    }
    if (dev->known != NULL) {
        calls->event_free(dev->known);
    }
    if (dev->ready != NULL) {
        calls->event_free(dev->ready);
    }
}

static void wait_for_streams(const struct cuda_device *dev)
{
    for (int i = 0; i < LANE_SIDES; i++) {
        if (dev->sides[i].stream != NULL) {
            (void)dev->calls->stream_sync(dev->sides[i].stream); /* the device has failed: nothing runs there any
                                                                    more */
        }
    }
}

void cuda_device_rest(const struct cuda_device *dev)
{
    struct cuda_place before;

    if (dev->calls->enter(dev->device, &before) == 0) {
        wait_for_streams(dev);
        dev->calls->leave(&before);
    }
}

/* Also safe on a device that has failed: its calls fail without effect. */
void cuda_device_close(struct cuda_device *dev)
{
    struct cuda_place before;
    bool inside = dev->calls->enter(dev->device, &before) == 0;

    if (inside) {
        wait_for_streams(dev);
    }
    free_lists(dev, &dev->lists);
    free_lists(dev, &dev->restores);
    free_digests(dev);
    free_list(dev, &dev->eager);
    if (dev->aside != NULL) {
        dev->calls->device_free(dev->aside);
    }
    bounce_free(&dev->ring, dev->calls);
    free_streams(dev);
    if (inside) {
        dev->calls->leave(&before);
    }
    *dev = (struct cuda_device){0};
}

/* ---- what is copied ------------------------------------------------------------------------------------------ */

static bool lies_here(const struct cuda_device *dev, const struct record *record)
{
    return record->memory == TCK_CUDA && record->device == dev->device && record->bytes > 0;
}

static uint64_t aside_size(const struct record *record)
{
    return (record->bytes + ASIDE_ALIGN - 1) / ASIDE_ALIGN * ASIDE_ALIGN;
}

/* Copies the pieces to the device, where the kernels read them. Called only while our streams are idle. */
static int upload(const struct cuda_device *dev, struct copy_plan *list)
{
    uint64_t bytes = list->piece_count * sizeof(*list->pieces);
    void *stream = dev->sides[0].stream;
    int rc;

    if (!list->stale) {
        return 0;
    }
    rc = list->table == NULL ? dev->calls->device_alloc((void **)&list->table, bytes) : 0;
    if (rc == 0) {
        rc = dev->calls->copy(list->table, list->pieces, bytes, stream);
    }
    if (rc == 0) {
        rc = dev->calls->stream_sync(stream);
    }
    list->stale = rc != 0;
    return rc;
}

static int upload_all(struct cuda_device *dev, struct copy_plan *lists)
{
    int rc = upload(dev, &dev->eager);

    for (uint32_t i = 0; i < dev->list_count && rc == 0; i++) {
        rc = upload(dev, &lists[i]);
        if (rc == 0 && dev->digests != NULL) {
            rc = device_digest_upload(&dev->digests[i], dev->calls, dev->sides[0].stream);
        }
    }
    return rc;
}

static bool gathers(const struct copy_plan *list)
{
    for (uint32_t i = 0; i < list->move_count; i++) {
        if (list->moves[i].count > 0) {
            return true;
        }
    }
    return false;
}

static int make_buffers(struct cuda_device *dev, const struct copy_plan *lists)
{
    bool needed = false;
    int rc = 0;

    for (uint32_t i = 0; i < dev->list_count; i++) {
        needed = needed || gathers(&lists[i]);
    }
    for (int i = 0; i < LANE_SIDES && needed && rc == 0; i++) {
        if (dev->sides[i].buffer == NULL) {
            rc = dev->calls->device_alloc(&dev->sides[i].buffer, MOVE_GATHERED_MOST);
        }
    }
    return rc;
}

static tck_status_t build_lists(const struct cuda_device *dev, const struct layout *layout, const uint64_t *addrs,
                                struct copy_plan **out, struct error *err)
{
    struct copy_plan *lists = calloc(layout->shard_count + (size_t)1, sizeof(*lists));
    tck_status_t status = TCK_OK;

    if (lists == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the copies of %u shards", layout->shard_count);
    }
    *out = lists;
    for (uint32_t i = 0; i < layout->shard_count && status == TCK_OK; i++) {
        status = copy_plan_build(layout, &layout->shards[i], dev->device, addrs, &lists[i], err);
    }
    return status;
}

static tck_status_t build_digests(struct cuda_device *dev, const struct layout *layout, const uint64_t *addrs,
                                  struct error *err)
{
    tck_status_t status = TCK_OK;

    dev->digests = calloc(layout->shard_count + (size_t)1, sizeof(*dev->digests));
    if (dev->digests == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the digests of %u shards", layout->shard_count);
    }
    for (uint32_t i = 0; i < layout->shard_count && status == TCK_OK; i++) {
        status = device_digest_build(layout, &layout->shards[i], dev->device, addrs, &dev->digests[i], err);
    }
    return status;
}

/* Plans where the eager records are staged, and the one list that copies them there. */
static tck_status_t plan_eager(struct cuda_device *dev, const struct layout *layout, struct error *err)
{
    uint64_t bytes = 0, pieces = 0;

    for (uint32_t r = 0; r < layout->record_count; r++) {
        const struct record *record = &layout->records[r];

        if (record->eager && lies_here(dev, record)) {
            bytes += aside_size(record);
            pieces += record->bytes / KERNELS_PIECE_BYTES + 1;
        }
    }
    if (bytes == 0) {
        return TCK_OK;
    }
    dev->eager.pieces = pieces < UINT32_MAX ? calloc(pieces, sizeof(*dev->eager.pieces)) : NULL;
    if (dev->eager.pieces == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the eager records");
    }
    return explain(dev, dev->calls->device_alloc(&dev->aside, bytes), "memory for the eager records", err);
}

static void add_eager(struct cuda_device *dev, const struct record *record, uint64_t offset)
{
    for (uint64_t at = 0; at < record->bytes; at += KERNELS_PIECE_BYTES) {
        uint64_t left = record->bytes - at;

        dev->eager.pieces[dev->eager.piece_count++] =
            (struct gather_piece){.addr = (uintptr_t)record->addr + at,
                                  .offset = offset + at,
                                  .bytes = left < KERNELS_PIECE_BYTES ? left : KERNELS_PIECE_BYTES};
    }
    dev->eager.stale = true;
}

/* Assigns the address that a snapshot reads each record from, and builds the list of the eager ones. */
static void assign(struct cuda_device *dev, const struct layout *layout, uint64_t *addrs)
{
    uint64_t offset = 0;

    dev->eager.piece_count = 0;
    for (uint32_t r = 0; r < layout->record_count; r++) {
        const struct record *record = &layout->records[r];

        addrs[r] = (uintptr_t)record->addr;
        if (record->eager && lies_here(dev, record)) {
            addrs[r] = (uintptr_t)dev->aside + offset;
            add_eager(dev, record, offset);
            offset += aside_size(record);
        }
    }
}

static tck_status_t prepare_inside(struct cuda_device *dev, const struct layout *layout, uint64_t *addrs,
                                   struct error *err)
{
    tck_status_t status = plan_eager(dev, layout, err);

    if (status == TCK_OK) {
        assign(dev, layout, addrs);
        dev->list_count = layout->shard_count;
        status = build_lists(dev, layout, addrs, &dev->lists, err);
    }
    if (status == TCK_OK && dev->wants_digests) {
        status = build_digests(dev, layout, addrs, err);
    }
    if (status == TCK_OK) {
        status = explain(dev, make_buffers(dev, dev->lists), "memory to gather small records in", err);
    }
    return status == TCK_OK ? explain(dev, upload_all(dev, dev->lists), "bring lists to the device", err) : status;
}

tck_status_t cuda_device_prepare(struct cuda_device *dev, const struct layout *layout, struct error *err)
{
    uint64_t *addrs = calloc(layout->record_count + (size_t)1, sizeof(*addrs));
    struct cuda_place before;
    tck_status_t status =
        addrs == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory for addresses") : enter_device(dev, &before, err);

    if (status == TCK_OK) {
        status = prepare_inside(dev, layout, addrs, err);
        dev->calls->leave(&before);
    }
    free(addrs);
    return status;
}

static void relocate_eager(struct cuda_device *dev, const struct layout *layout)
{
    uint64_t offset = 0;

    dev->eager.piece_count = 0;
    for (uint32_t r = 0; r < layout->record_count; r++) {
        const struct record *record = &layout->records[r];

        if (record->eager && lies_here(dev, record)) {
            add_eager(dev, record, offset);
            offset += aside_size(record);
        }
    }
}

void cuda_device_relocate(struct cuda_device *dev, const struct layout *layout, uint32_t r)
{
    const struct record *record = &layout->records[r];

    if (!lies_here(dev, record) || dev->lists == NULL) {
        return;
    }
    if (record->eager) {
        relocate_eager(dev, layout);
    } else {
        copy_plan_relocate(&dev->lists[record->shard], record, (uintptr_t)record->addr);
        if (dev->digests != NULL) {
            device_digest_relocate(&dev->digests[record->shard], record, (uintptr_t)record->addr);
        }
    }
}

tck_status_t cuda_device_restore_prepare(struct cuda_device *dev, const struct layout *layout, struct error *err)
{
    uint64_t *addrs = calloc(layout->record_count + (size_t)1, sizeof(*addrs));
    struct cuda_place before;
    tck_status_t status =
        addrs == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory for addresses") : enter_device(dev, &before, err);

    if (status != TCK_OK) {
        free(addrs);
        return status;
    }
    for (uint32_t r = 0; r < layout->record_count; r++) {
        addrs[r] = (uintptr_t)layout->records[r].addr;
    }
    status = build_lists(dev, layout, addrs, &dev->restores, err);
    if (status == TCK_OK) {
        status = explain(dev, make_buffers(dev, dev->restores), "memory to restore small records from", err);
    }
    if (status == TCK_OK) {
        status = explain(dev, upload_all(dev, dev->restores), "bring lists to the device", err);
    }
    dev->calls->leave(&before);
    free(addrs);
    return status;
}

void cuda_device_restore_over(struct cuda_device *dev)
{
    struct cuda_place before;
    bool inside = dev->calls->enter(dev->device, &before) == 0;

    free_lists(dev, &dev->restores);
    if (inside) {
        dev->calls->leave(&before);
    }
}

/* ---- the training's stream ----------------------------------------------------------------------------------- */

static tck_status_t check_capture(const struct cuda_device *dev, struct error *err)
{
    bool capturing = false;
    int rc = dev->calls->stream_capturing(dev->stream, &capturing);

    if (rc == 0 && capturing) {
        return error_set(err, TCK_ERR_INVAL,
                         "the training's stream on CUDA device %d is being captured into a graph: saves and their "
                         "fences belong outside of it",
                         dev->device);
    }
    return explain(dev, rc, "ask about the training's stream", err);
}

static int copy_eager(struct cuda_device *dev)
{
    const struct copy_plan *eager = &dev->eager;

    return eager->piece_count == 0 ? 0 : dev->calls->gather(dev->stream, eager->table, eager->piece_count, dev->aside);
}

static tck_status_t mark_inside(struct cuda_device *dev, bool eager, struct error *err)
{
    tck_status_t status = check_capture(dev, err);

    if (status == TCK_OK) {
        status = explain(dev, upload_all(dev, dev->lists), "bring lists to the device", err);
    }
    if (status == TCK_OK && eager) {
        status = explain(dev, copy_eager(dev), "copy the eager records", err);
    }
    if (status == TCK_OK) {
        status = explain(dev, dev->calls->event_record(dev->ready, dev->stream), "mark the training's stream", err);
    }
    return status;
}

tck_status_t cuda_device_mark(struct cuda_device *dev, bool eager, struct error *err)
{
    struct cuda_place before;
    tck_status_t status = enter_device(dev, &before, err);

    if (status == TCK_OK) {
        status = mark_inside(dev, eager, err);
        dev->calls->leave(&before);
    }
    return status;
}

tck_status_t cuda_device_hold(struct cuda_device *dev, struct error *err)
{
    struct cuda_place before;
    tck_status_t status = explain(dev, dev->calls->enter(dev->device, &before), "cannot be used", err);

    if (status != TCK_OK) {
        return status;
    }
    status = check_capture(dev, err);
    if (status == TCK_OK) {
        status = explain(dev, dev->calls->stream_wait(dev->stream, dev->done), "hold the training's stream", err);
    }
    dev->calls->leave(&before);
    return status;
}

/* ---- copies -------------------------------------------------------------------------------------------------- */

tck_status_t cuda_device_start(struct cuda_device *dev, struct error *err)
{
    struct cuda_place before;
    tck_status_t status = enter_device(dev, &before, err);
    int rc = 0;

    if (status != TCK_OK) {
        return status;
    }
    for (int i = 0; i < LANE_SIDES && rc == 0; i++) {
        rc = dev->calls->stream_wait(dev->sides[i].stream, dev->ready);
    }
    dev->calls->leave(&before);
    return explain(dev, rc, "wait for the training's stream", err);
}

/* Runs one of the three functions below; does nothing if no digests are wanted. */
typedef int digest_call(struct cuda_device *dev, uint32_t shard);

static tck_status_t on_digests(struct cuda_device *dev, digest_call *call, uint32_t shard, const char *what,
                               struct error *err)
{
    struct cuda_place before;
    tck_status_t status = dev->digests == NULL ? TCK_OK : enter_device(dev, &before, err);
    int rc;

    if (status != TCK_OK || dev->digests == NULL) {
        return status;
    }
    rc = call(dev, shard);
    dev->calls->leave(&before);
    return explain(dev, rc, what, err);
}

static int make_digest(struct cuda_device *dev, uint32_t shard)
{
    return device_digest_make(&dev->digests[shard], dev->calls, dev->sides[0].stream);
}

static int mark_digested(struct cuda_device *dev, uint32_t shard)
{
    (void)shard;
    return dev->calls->event_record(dev->known, dev->sides[0].stream);
}

static int await_digested(struct cuda_device *dev, uint32_t shard)
{
    (void)shard;
    return dev->calls->event_sync(dev->known);
}

tck_status_t cuda_device_digest(struct cuda_device *dev, uint32_t shard, struct error *err)
{
    return on_digests(dev, make_digest, shard, "make digests", err);
}

tck_status_t cuda_device_digested(struct cuda_device *dev, struct error *err)
{
    return on_digests(dev, mark_digested, 0, "end the digests", err);
}

tck_status_t cuda_device_await_digests(struct cuda_device *dev, struct error *err)
{
    return on_digests(dev, await_digested, 0, "make digests", err);
}

/* What all moves of a list have in common. */
struct trip {
    struct cuda_device *dev;
    const struct copy_plan *list;
    enum way way;
    bool pinned;
    uint8_t *image;
};

/* Copies a move between the device and its place in the image. */
static int transfer(const struct trip *trip, const struct ring_copy *copy, void *stream)
{
    const struct cuda_calls *calls = trip->dev->calls;

    if (trip->way == TO_IMAGE) {
        return trip->pinned ? calls->copy(copy->host, copy->device, copy->bytes, stream)
                            : bounce_to_host(&trip->dev->ring, calls, copy, stream);
    }
    return trip->pinned ? calls->copy(copy->device, copy->host, copy->bytes, stream)
                        : bounce_to_device(&trip->dev->ring, calls, copy, stream);
}

static int gather(const struct trip *trip, const struct move *move, const struct side *side)
{
    const struct cuda_calls *calls = trip->dev->calls;
    int rc = move->gaps ? calls->zero(side->buffer, move->bytes, side->stream) : 0;

    return rc == 0 ? calls->gather(side->stream, trip->list->table + move->first, move->count, side->buffer) : rc;
}

static int scatter(const struct trip *trip, const struct move *move, const struct side *side)
{
    return trip->dev->calls->scatter(side->stream, trip->list->table + move->first, move->count, side->buffer);
}

static int carry(const struct trip *trip, const struct move *move)
{
    const struct side *side = &trip->dev->sides[trip->dev->next_side++ % LANE_SIDES];
    bool gathered = move->count > 0;
    struct ring_copy copy = {.device = gathered ? side->buffer : (void *)(uintptr_t)move->addr,
                             .host = trip->image + move->image_offset,
                             .bytes = move->bytes};
    int rc = gathered && trip->way == TO_IMAGE ? gather(trip, move, side) : 0;

    if (rc == 0) {
        rc = transfer(trip, &copy, side->stream);
    }
    return rc == 0 && gathered && trip->way == FROM_IMAGE ? scatter(trip, move, side) : rc;
}

tck_status_t cuda_device_copy(struct cuda_device *dev, const struct copy_plan *list, enum way way, bool pinned,
                              uint8_t *image, struct error *err)
{
    struct trip trip = {dev, list, way, pinned, image};
    struct cuda_place before;
    tck_status_t status = enter_device(dev, &before, err);
    int rc = 0;

    if (status != TCK_OK) {
        return status;
    }
    for (uint32_t i = 0; i < list->move_count && rc == 0; i++) {
        rc = carry(&trip, &list->moves[i]);
    }
    dev->calls->leave(&before);
    return explain(dev, rc, way == TO_IMAGE ? "copy to the slot" : "copy from the slot", err);
}

/* Makes the first stream wait for the ends of the others. */
static int end_inside(struct cuda_device *dev)
{
    const struct cuda_calls *calls = dev->calls;
    int rc = 0;

    for (int i = 1; i < LANE_SIDES && rc == 0; i++) {
        rc = calls->event_record(dev->sides[i].passed, dev->sides[i].stream);
        if (rc == 0) {
            rc = calls->stream_wait(dev->sides[0].stream, dev->sides[i].passed);
        }
    }
    rc = rc == 0 ? calls->event_record(dev->done, dev->sides[0].stream) : rc;
    dev->ended = rc == 0;
    return rc;
}

tck_status_t cuda_device_end(struct cuda_device *dev, struct error *err)
{
    struct cuda_place before;
    tck_status_t status = enter_device(dev, &before, err);

    if (status == TCK_OK) {
        status = explain(dev, end_inside(dev), "end the copies", err);
        dev->calls->leave(&before);
    }
    return status;
}

/* Slots that are given up must not be written any more, so this waits for the streams whatever has happened. A
 * stream that cannot even be waited for has failed permanently, and with it the whole device. */
static int finish_inside(struct cuda_device *dev)
{
    int first = dev->ended ? dev->calls->event_sync(dev->done) : 0, rc; /* this wait sleeps; waiting for a stream
                                                                           would spin */

    for (int i = 0; i < LANE_SIDES; i++) {
        rc = dev->calls->stream_sync(dev->sides[i].stream);
        first = first == 0 ? rc : first;
    }
    dev->ended = false;
    dev->broken = dev->broken || first != 0;
    rc = bounce_drain(&dev->ring, dev->calls);
    return first == 0 ? rc : first;
}

tck_status_t cuda_device_finish(struct cuda_device *dev, struct error *err)
{
    struct cuda_place before;
    tck_status_t status;

    status = enter_device(dev, &before, err);
    if (status != TCK_OK) {
        dev->broken =
            true; /* otherwise bytes still in the ring could be written into a slot that has been reassigned */
        return status;
    }
    status = explain(dev, finish_inside(dev), "copying", err);
    dev->calls->leave(&before);
    return status;
}

tck_status_t cuda_device_write(struct cuda_device *dev, void *to, const void *from, uint64_t bytes, struct error *err)
{
    struct ring_copy copy = {.device = to, .host = (void *)(uintptr_t)from, .bytes = bytes};
    tck_status_t status = cuda_device_mark(dev, false, err), finished;
    struct cuda_place before;

    if (status == TCK_OK) {
        status = cuda_device_start(dev, err);
    }
    if (status == TCK_OK) {
        status = enter_device(dev, &before, err);
    }
    if (status == TCK_OK) {
        int rc = bounce_to_device(&dev->ring, dev->calls, &copy, dev->sides[0].stream);

        dev->calls->leave(&before);
        status = explain(dev, rc, "copy to the device", err);
    }
    finished = cuda_device_finish(dev, status == TCK_OK ? err : NULL);
    return status == TCK_OK ? finished : status;
}
