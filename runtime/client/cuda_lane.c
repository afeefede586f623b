/* SPDX-License-Identifier: Apache-2.0
 * Streams, events and buffers of one device. */
#include "client/cuda_lane.h"

#include <stdlib.h>

#define ASIDE_ALIGN 64

/* What an error number of a call means, for whoever is told; 0 is no error. */
static tck_status_t explain(const struct lane *lane, int rc, const char *what, struct error *err)
{
    if (rc == 0) {
        return TCK_OK;
    }
    return error_set(err, TCK_ERR_IO, "CUDA device %d: %s: %s", lane->device, what, lane->calls->error_text(rc));
}

static tck_status_t come_in(const struct lane *lane, struct cuda_place *before, struct error *err)
{
    if (lane->broken) {
        return error_set(err, TCK_ERR_IO, "CUDA device %d has failed, and is not used any more", lane->device);
    }
    return explain(lane, lane->calls->enter(lane->device, before), "cannot be used", err);
}

/* ---- made and freed ------------------------------------------------------------------------------------------ */

static int make_streams(struct lane *lane)
{
    const struct cuda_calls *calls = lane->calls;
    int rc = calls->event_new(&lane->ready);

    if (rc == 0) {
        rc = calls->event_new(&lane->known);
    }
    if (rc == 0) {
        rc = calls->event_new(&lane->done);
    }
    for (int i = 0; i < LANE_SIDES && rc == 0; i++) {
        rc = calls->stream_new(&lane->sides[i].stream);
        if (rc == 0) {
            rc = calls->event_new(&lane->sides[i].passed);
        }
    }
    return rc;
}

tck_status_t lane_open(struct lane *lane, const struct cuda_calls *calls, int device, struct error *err)
{
    struct cuda_place before;
    tck_status_t status;

    *lane = (struct lane){.calls = calls, .device = device};
    status = come_in(lane, &before, err);
    if (status != TCK_OK) {
        *lane = (struct lane){0};
        return status;
    }
    status = explain(lane, make_streams(lane), "make streams and events", err);
    calls->leave(&before);
    if (status != TCK_OK) {
        lane_close(lane);
    }
    return status;
}

static void free_list(const struct lane *lane, struct move_list *list)
{
    if (list->table != NULL) {
        lane->calls->device_free(list->table);
    }
    move_list_free(list);
}

static void free_lists(const struct lane *lane, struct move_list **lists)
{
    for (uint32_t i = 0; i < lane->list_count && *lists != NULL; i++) {
        free_list(lane, &(*lists)[i]);
    }
    free(*lists);
    *lists = NULL;
}

static void free_digests(struct lane *lane)
{
    for (uint32_t i = 0; i < lane->list_count && lane->digests != NULL; i++) {
        device_digest_free(&lane->digests[i], lane->calls);
    }
    free(lane->digests);
    lane->digests = NULL;
}

static void free_streams(struct lane *lane)
{
    const struct cuda_calls *calls = lane->calls;

    for (int i = 0; i < LANE_SIDES; i++) {
        struct side *side = &lane->sides[i];

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
    if (lane->done != NULL) {
        calls->event_free(lane->done);
    }
    if (lane->known != NULL) {
        calls->event_free(lane->known);
    }
    if (lane->ready != NULL) {
        calls->event_free(lane->ready);
    }
}

static void wait_for_streams(const struct lane *lane)
{
    for (int i = 0; i < LANE_SIDES; i++) {
        if (lane->sides[i].stream != NULL) {
            (void)lane->calls->stream_sync(lane->sides[i].stream); /* of a failed device: nothing runs there any more */
        }
    }
}

void lane_rest(const struct lane *lane)
{
    struct cuda_place before;

    if (lane->calls->enter(lane->device, &before) == 0) {
        wait_for_streams(lane);
        lane->calls->leave(&before);
    }
}

/* Also on a device that has failed: its calls fail, and do no harm. */
void lane_close(struct lane *lane)
{
    struct cuda_place before;
    bool inside = lane->calls->enter(lane->device, &before) == 0;

    if (inside) {
        wait_for_streams(lane);
    }
    free_lists(lane, &lane->lists);
    free_lists(lane, &lane->restores);
    free_digests(lane);
    free_list(lane, &lane->eager);
    if (lane->aside != NULL) {
        lane->calls->device_free(lane->aside);
    }
    ring_free(&lane->ring, lane->calls);
    free_streams(lane);
    if (inside) {
        lane->calls->leave(&before);
    }
    *lane = (struct lane){0};
}

/* ---- what is copied ------------------------------------------------------------------------------------------ */

static bool lies_here(const struct lane *lane, const struct record *record)
{
    return record->memory == TCK_CUDA && record->device == lane->device && record->bytes > 0;
}

static uint64_t aside_size(const struct record *record)
{
    return (record->bytes + ASIDE_ALIGN - 1) / ASIDE_ALIGN * ASIDE_ALIGN;
}

/* Brings the pieces to the device, where the kernels look for them. Our streams have nothing to do at such times. */
static int upload(const struct lane *lane, struct move_list *list)
{
    uint64_t bytes = list->piece_count * sizeof(*list->pieces);
    void *stream = lane->sides[0].stream;
    int rc;

    if (!list->stale) {
        return 0;
    }
    rc = list->table == NULL ? lane->calls->device_alloc((void **)&list->table, bytes) : 0;
    if (rc == 0) {
        rc = lane->calls->copy(list->table, list->pieces, bytes, stream);
    }
    if (rc == 0) {
        rc = lane->calls->stream_sync(stream);
    }
    list->stale = rc != 0;
    return rc;
}

static int upload_all(struct lane *lane, struct move_list *lists)
{
    int rc = upload(lane, &lane->eager);

    for (uint32_t i = 0; i < lane->list_count && rc == 0; i++) {
        rc = upload(lane, &lists[i]);
        if (rc == 0 && lane->digests != NULL) {
            rc = device_digest_upload(&lane->digests[i], lane->calls, lane->sides[0].stream);
        }
    }
    return rc;
}

static bool gathers(const struct move_list *list)
{
    for (uint32_t i = 0; i < list->move_count; i++) {
        if (list->moves[i].count > 0) {
            return true;
        }
    }
    return false;
}

static int make_buffers(struct lane *lane, const struct move_list *lists)
{
    bool needed = false;
    int rc = 0;

    for (uint32_t i = 0; i < lane->list_count; i++) {
        needed = needed || gathers(&lists[i]);
    }
    for (int i = 0; i < LANE_SIDES && needed && rc == 0; i++) {
        if (lane->sides[i].buffer == NULL) {
            rc = lane->calls->device_alloc(&lane->sides[i].buffer, MOVE_GATHERED_MOST);
        }
    }
    return rc;
}

static tck_status_t build_lists(const struct lane *lane, const struct layout *layout, const uint64_t *addrs,
                                struct move_list **out, struct error *err)
{
    struct move_list *lists = calloc(layout->shard_count + (size_t)1, sizeof(*lists));
    tck_status_t status = TCK_OK;

    if (lists == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the copies of %u shards", layout->shard_count);
    }
    *out = lists;
    for (uint32_t i = 0; i < layout->shard_count && status == TCK_OK; i++) {
        status = move_list_build(layout, &layout->shards[i], lane->device, addrs, &lists[i], err);
    }
    return status;
}

static tck_status_t build_digests(struct lane *lane, const struct layout *layout, const uint64_t *addrs,
                                  struct error *err)
{
    tck_status_t status = TCK_OK;

    lane->digests = calloc(layout->shard_count + (size_t)1, sizeof(*lane->digests));
    if (lane->digests == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the digests of %u shards", layout->shard_count);
    }
    for (uint32_t i = 0; i < layout->shard_count && status == TCK_OK; i++) {
        status = device_digest_build(layout, &layout->shards[i], lane->device, addrs, &lane->digests[i], err);
    }
    return status;
}

/* Where the eager records go, and the one list that brings them there. */
static tck_status_t plan_eager(struct lane *lane, const struct layout *layout, struct error *err)
{
    uint64_t bytes = 0, pieces = 0;

    for (uint32_t r = 0; r < layout->record_count; r++) {
        const struct record *record = &layout->records[r];

        if (record->eager && lies_here(lane, record)) {
            bytes += aside_size(record);
            pieces += record->bytes / KERNELS_PIECE_BYTES + 1;
        }
    }
    if (bytes == 0) {
        return TCK_OK;
    }
    lane->eager.pieces = pieces < UINT32_MAX ? calloc(pieces, sizeof(*lane->eager.pieces)) : NULL;
    if (lane->eager.pieces == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the eager records");
    }
    return explain(lane, lane->calls->device_alloc(&lane->aside, bytes), "memory for the eager records", err);
}

static void add_eager(struct lane *lane, const struct record *record, uint64_t offset)
{
    for (uint64_t at = 0; at < record->bytes; at += KERNELS_PIECE_BYTES) {
        uint64_t left = record->bytes - at;

        lane->eager.pieces[lane->eager.piece_count++] =
            (struct gather_piece){.addr = (uintptr_t)record->addr + at,
                                  .offset = offset + at,
                                  .bytes = left < KERNELS_PIECE_BYTES ? left : KERNELS_PIECE_BYTES};
    }
    lane->eager.stale = true;
}

/* Where a snapshot reads each record; also makes the list of the eager ones. */
static void assign(struct lane *lane, const struct layout *layout, uint64_t *addrs)
{
    uint64_t offset = 0;

    lane->eager.piece_count = 0;
    for (uint32_t r = 0; r < layout->record_count; r++) {
        const struct record *record = &layout->records[r];

        addrs[r] = (uintptr_t)record->addr;
        if (record->eager && lies_here(lane, record)) {
            addrs[r] = (uintptr_t)lane->aside + offset;
            add_eager(lane, record, offset);
            offset += aside_size(record);
        }
    }
}

static tck_status_t prepare_inside(struct lane *lane, const struct layout *layout, uint64_t *addrs, struct error *err)
{
    tck_status_t status = plan_eager(lane, layout, err);

    if (status == TCK_OK) {
        assign(lane, layout, addrs);
        lane->list_count = layout->shard_count;
        status = build_lists(lane, layout, addrs, &lane->lists, err);
    }
    if (status == TCK_OK && lane->wants_digests) {
        status = build_digests(lane, layout, addrs, err);
    }
    if (status == TCK_OK) {
        status = explain(lane, make_buffers(lane, lane->lists), "memory to gather small records in", err);
    }
    return status == TCK_OK ? explain(lane, upload_all(lane, lane->lists), "bring lists to the device", err) : status;
}

tck_status_t lane_prepare(struct lane *lane, const struct layout *layout, struct error *err)
{
    uint64_t *addrs = calloc(layout->record_count + (size_t)1, sizeof(*addrs));
    struct cuda_place before;
    tck_status_t status =
        addrs == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory for addresses") : come_in(lane, &before, err);

    if (status == TCK_OK) {
        status = prepare_inside(lane, layout, addrs, err);
        lane->calls->leave(&before);
    }
    free(addrs);
    return status;
}

static void relocate_eager(struct lane *lane, const struct layout *layout)
{
    uint64_t offset = 0;

    lane->eager.piece_count = 0;
    for (uint32_t r = 0; r < layout->record_count; r++) {
        const struct record *record = &layout->records[r];

        if (record->eager && lies_here(lane, record)) {
            add_eager(lane, record, offset);
            offset += aside_size(record);
        }
    }
}

void lane_relocate(struct lane *lane, const struct layout *layout, uint32_t r)
{
    const struct record *record = &layout->records[r];

    if (!lies_here(lane, record) || lane->lists == NULL) {
        return;
    }
    if (record->eager) {
        relocate_eager(lane, layout);
    } else {
        move_list_relocate(&lane->lists[record->shard], record, (uintptr_t)record->addr);
        if (lane->digests != NULL) {
            device_digest_relocate(&lane->digests[record->shard], record, (uintptr_t)record->addr);
        }
    }
}

tck_status_t lane_restore_prepare(struct lane *lane, const struct layout *layout, struct error *err)
{
    uint64_t *addrs = calloc(layout->record_count + (size_t)1, sizeof(*addrs));
    struct cuda_place before;
    tck_status_t status =
        addrs == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory for addresses") : come_in(lane, &before, err);

    if (status != TCK_OK) {
        free(addrs);
        return status;
    }
    for (uint32_t r = 0; r < layout->record_count; r++) {
        addrs[r] = (uintptr_t)layout->records[r].addr;
    }
    status = build_lists(lane, layout, addrs, &lane->restores, err);
    if (status == TCK_OK) {
        status = explain(lane, make_buffers(lane, lane->restores), "memory to restore small records from", err);
    }
    if (status == TCK_OK) {
        status = explain(lane, upload_all(lane, lane->restores), "bring lists to the device", err);
    }
    lane->calls->leave(&before);
    free(addrs);
    return status;
}

void lane_restore_over(struct lane *lane)
{
    struct cuda_place before;
    bool inside = lane->calls->enter(lane->device, &before) == 0;

    free_lists(lane, &lane->restores);
    if (inside) {
        lane->calls->leave(&before);
    }
}

/* ---- the training's stream ----------------------------------------------------------------------------------- */

static tck_status_t check_capture(const struct lane *lane, struct error *err)
{
    bool capturing = false;
    int rc = lane->calls->stream_capturing(lane->stream, &capturing);

    if (rc == 0 && capturing) {
        return error_set(err, TCK_ERR_INVAL,
                         "the training's stream on CUDA device %d is being captured into a graph: saves and their "
                         "fences belong outside of it",
                         lane->device);
    }
    return explain(lane, rc, "ask about the training's stream", err);
}

static int copy_eager(struct lane *lane)
{
    const struct move_list *eager = &lane->eager;

    return eager->piece_count == 0 ? 0
                                   : lane->calls->gather(lane->stream, eager->table, eager->piece_count, lane->aside);
}

static tck_status_t mark_inside(struct lane *lane, bool eager, struct error *err)
{
    tck_status_t status = check_capture(lane, err);

    if (status == TCK_OK) {
        status = explain(lane, upload_all(lane, lane->lists), "bring lists to the device", err);
    }
    if (status == TCK_OK && eager) {
        status = explain(lane, copy_eager(lane), "copy the eager records", err);
    }
    if (status == TCK_OK) {
        status = explain(lane, lane->calls->event_record(lane->ready, lane->stream), "mark the training's stream", err);
    }
    return status;
}

tck_status_t lane_mark(struct lane *lane, bool eager, struct error *err)
{
    struct cuda_place before;
    tck_status_t status = come_in(lane, &before, err);

    if (status == TCK_OK) {
        status = mark_inside(lane, eager, err);
        lane->calls->leave(&before);
    }
    return status;
}

tck_status_t lane_hold(struct lane *lane, struct error *err)
{
    struct cuda_place before;
    tck_status_t status = explain(lane, lane->calls->enter(lane->device, &before), "cannot be used", err);

    if (status != TCK_OK) {
        return status;
    }
    status = check_capture(lane, err);
    if (status == TCK_OK) {
        status = explain(lane, lane->calls->stream_wait(lane->stream, lane->done), "hold the training's stream", err);
    }
    lane->calls->leave(&before);
    return status;
}

/* ---- copies -------------------------------------------------------------------------------------------------- */

tck_status_t lane_start(struct lane *lane, struct error *err)
{
    struct cuda_place before;
    tck_status_t status = come_in(lane, &before, err);
    int rc = 0;

    if (status != TCK_OK) {
        return status;
    }
    for (int i = 0; i < LANE_SIDES && rc == 0; i++) {
        rc = lane->calls->stream_wait(lane->sides[i].stream, lane->ready);
    }
    lane->calls->leave(&before);
    return explain(lane, rc, "wait for the training's stream", err);
}

/* One of the three below; nothing if no digests are made. */
typedef int digest_call(struct lane *lane, uint32_t shard);

static tck_status_t on_digests(struct lane *lane, digest_call *call, uint32_t shard, const char *what,
                               struct error *err)
{
    struct cuda_place before;
    tck_status_t status = lane->digests == NULL ? TCK_OK : come_in(lane, &before, err);
    int rc;

    if (status != TCK_OK || lane->digests == NULL) {
        return status;
    }
    rc = call(lane, shard);
    lane->calls->leave(&before);
    return explain(lane, rc, what, err);
}

static int make_digest(struct lane *lane, uint32_t shard)
{
    return device_digest_make(&lane->digests[shard], lane->calls, lane->sides[0].stream);
}

static int mark_digested(struct lane *lane, uint32_t shard)
{
    (void)shard;
    return lane->calls->event_record(lane->known, lane->sides[0].stream);
}

static int await_digested(struct lane *lane, uint32_t shard)
{
    (void)shard;
    return lane->calls->event_sync(lane->known);
}

tck_status_t lane_digest(struct lane *lane, uint32_t shard, struct error *err)
{
    return on_digests(lane, make_digest, shard, "make digests", err);
}

tck_status_t lane_digested(struct lane *lane, struct error *err)
{
    return on_digests(lane, mark_digested, 0, "end the digests", err);
}

tck_status_t lane_await_digests(struct lane *lane, struct error *err)
{
    return on_digests(lane, await_digested, 0, "make digests", err);
}

/* What all moves of a list have in common. */
struct trip {
    struct lane *lane;
    const struct move_list *list;
    enum way way;
    bool pinned;
    uint8_t *image;
};

/* Between the device and its place in the image. */
static int transfer(const struct trip *trip, const struct ring_copy *copy, void *stream)
{
    const struct cuda_calls *calls = trip->lane->calls;

    if (trip->way == TO_IMAGE) {
        return trip->pinned ? calls->copy(copy->host, copy->device, copy->bytes, stream)
                            : ring_to_host(&trip->lane->ring, calls, copy, stream);
    }
    return trip->pinned ? calls->copy(copy->device, copy->host, copy->bytes, stream)
                        : ring_to_device(&trip->lane->ring, calls, copy, stream);
}

static int gather(const struct trip *trip, const struct move *move, const struct side *side)
{
    const struct cuda_calls *calls = trip->lane->calls;
    int rc = move->gaps ? calls->zero(side->buffer, move->bytes, side->stream) : 0;

    return rc == 0 ? calls->gather(side->stream, trip->list->table + move->first, move->count, side->buffer) : rc;
}

static int scatter(const struct trip *trip, const struct move *move, const struct side *side)
{
    return trip->lane->calls->scatter(side->stream, trip->list->table + move->first, move->count, side->buffer);
}

static int carry(const struct trip *trip, const struct move *move)
{
    const struct side *side = &trip->lane->sides[trip->lane->next_side++ % LANE_SIDES];
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

tck_status_t lane_copy(struct lane *lane, const struct move_list *list, enum way way, bool pinned, uint8_t *image,
                       struct error *err)
{
    struct trip trip = {lane, list, way, pinned, image};
    struct cuda_place before;
    tck_status_t status = come_in(lane, &before, err);
    int rc = 0;

    if (status != TCK_OK) {
        return status;
    }
    for (uint32_t i = 0; i < list->move_count && rc == 0; i++) {
        rc = carry(&trip, &list->moves[i]);
    }
    lane->calls->leave(&before);
    return explain(lane, rc, way == TO_IMAGE ? "copy to the slot" : "copy from the slot", err);
}

/* The first stream takes the others' ends together. */
static int end_inside(struct lane *lane)
{
    const struct cuda_calls *calls = lane->calls;
    int rc = 0;

    for (int i = 1; i < LANE_SIDES && rc == 0; i++) {
        rc = calls->event_record(lane->sides[i].passed, lane->sides[i].stream);
        if (rc == 0) {
            rc = calls->stream_wait(lane->sides[0].stream, lane->sides[i].passed);
        }
    }
    rc = rc == 0 ? calls->event_record(lane->done, lane->sides[0].stream) : rc;
    lane->ended = rc == 0;
    return rc;
}

tck_status_t lane_end(struct lane *lane, struct error *err)
{
    struct cuda_place before;
    tck_status_t status = come_in(lane, &before, err);

    if (status == TCK_OK) {
        status = explain(lane, end_inside(lane), "end the copies", err);
        lane->calls->leave(&before);
    }
    return status;
}

/* Slots that are given up must not be written any more, so the streams are waited for whatever happened. One that
 * cannot even be waited for has failed for good, and with it the whole device. */
static int finish_inside(struct lane *lane)
{
    int first = lane->ended ? lane->calls->event_sync(lane->done) : 0, rc; /* asleep, where a stream would spin */

    for (int i = 0; i < LANE_SIDES; i++) {
        rc = lane->calls->stream_sync(lane->sides[i].stream);
        first = first == 0 ? rc : first;
    }
    lane->ended = false;
    lane->broken = lane->broken || first != 0;
    rc = ring_drain(&lane->ring, lane->calls);
    return first == 0 ? rc : first;
}

tck_status_t lane_finish(struct lane *lane, struct error *err)
{
    struct cuda_place before;
    tck_status_t status;

    status = come_in(lane, &before, err);
    if (status != TCK_OK) {
        lane->broken = true; /* what the ring still has would otherwise go into a slot that by then is another's */
        return status;
    }
    status = explain(lane, finish_inside(lane), "copying", err);
    lane->calls->leave(&before);
    return status;
}

tck_status_t lane_write(struct lane *lane, void *to, const void *from, uint64_t bytes, struct error *err)
{
    struct ring_copy copy = {.device = to, .host = (void *)(uintptr_t)from, .bytes = bytes};
    tck_status_t status = lane_mark(lane, false, err), finished;
    struct cuda_place before;

    if (status == TCK_OK) {
        status = lane_start(lane, err);
    }
    if (status == TCK_OK) {
        status = come_in(lane, &before, err);
    }
    if (status == TCK_OK) {
        int rc = ring_to_device(&lane->ring, lane->calls, &copy, lane->sides[0].stream);

        lane->calls->leave(&before);
        status = explain(lane, rc, "copy to the device", err);
    }
    finished = lane_finish(lane, status == TCK_OK ? err : NULL);
    return status == TCK_OK ? finished : status;
}
