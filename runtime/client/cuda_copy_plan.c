/* SPDX-License-Identifier: Apache-2.0
 * Cutting a shard's records into moves. */
#include "client/cuda_copy_plan.h"

#include <inttypes.h>
#include <stdlib.h>

static bool lies_here(const struct record *record, int device)
{
    return record->memory == TCK_CUDA && record->device == device && record->bytes > 0;
}

static bool is_small(const struct record *record)
{
    return record->bytes < MOVE_SMALL_BYTES;
}

static uint32_t pieces_of(const struct record *record)
{
    return (uint32_t)((record->bytes + KERNELS_PIECE_BYTES - 1) / KERNELS_PIECE_BYTES);
}

/* Whether the move's part of the image may be extended to the end of this record, between which and the move there is
 * no other record. */
static bool continues(const struct move *move, const struct record *record)
{
    return move->addr == 0 && is_small(record) &&
           record->image_offset + record->bytes - move->image_offset <= MOVE_GATHERED_MOST;
}

static void add_pieces(struct copy_plan *list, struct move *move, const struct record *record, uint64_t addr)
{
    for (uint64_t at = 0; at < record->bytes; at += KERNELS_PIECE_BYTES) {
        uint64_t left = record->bytes - at;

        list->pieces[list->piece_count++] =
            (struct gather_piece){.addr = addr + at,
                                  .offset = record->image_offset - move->image_offset + at,
                                  .bytes = left < KERNELS_PIECE_BYTES ? left : KERNELS_PIECE_BYTES};
        move->count++;
    }
}

/* follows: no other record lies between it and the one that was added last. */
static void add_record(struct copy_plan *list, const struct record *record, uint64_t addr, bool follows)
{
    struct move *move;
    uint64_t end;

    if (!is_small(record)) {
        list->moves[list->move_count++] =
            (struct move){.image_offset = record->image_offset, .bytes = record->bytes, .addr = addr};
        return;
    }
    if (list->move_count == 0 || !follows || !continues(&list->moves[list->move_count - 1], record)) {
        list->moves[list->move_count++] =
            (struct move){.image_offset = record->image_offset, .first = list->piece_count};
    }
    move = &list->moves[list->move_count - 1];
    move->several = move->count > 0;
    end = move->image_offset + move->bytes;
    move->gaps = move->gaps || record->image_offset != end;
    move->bytes = record->image_offset + record->bytes - move->image_offset;
    add_pieces(list, move, record, addr);
}

/* One small record by itself needs no buffer. */
static void settle_single(struct copy_plan *list)
{
    for (uint32_t i = 0; i < list->move_count; i++) {
        struct move *move = &list->moves[i];

        if (move->count > 0 && !move->several) {
            move->addr = list->pieces[move->first].addr;
            move->count = 0;
        }
    }
}

static tck_status_t allocate(const struct layout *layout, const struct shard *shard, int device, struct copy_plan *out,
                             struct error *err)
{
    uint64_t pieces = 0, records = 0;

    for (uint32_t i = 0; i < shard->record_count; i++) {
        const struct record *record = &layout->records[shard->records[i]];

        if (lies_here(record, device)) {
            records++;
            pieces += is_small(record) ? pieces_of(record) : 0;
        }
    }
    if (pieces < UINT32_MAX) {
        out->pieces = calloc(pieces + 1, sizeof(*out->pieces));
        out->moves = calloc(records + 1, sizeof(*out->moves));
    }
    if (out->pieces == NULL || out->moves == NULL) {
        copy_plan_free(out);
        return error_set(err, TCK_ERR_NOMEM, "no memory for the copies of %" PRIu64 " records", records);
    }
    return TCK_OK;
}

tck_status_t copy_plan_build(const struct layout *layout, const struct shard *shard, int device, const uint64_t *addrs,
                             struct copy_plan *out, struct error *err)
{
    struct copy_plan list = {0};
    bool follows = true;
    tck_status_t status = allocate(layout, shard, device, &list, err);

    if (status != TCK_OK) {
        return status;
    }
    for (uint32_t i = 0; i < shard->record_count; i++) {
        const struct record *record = &layout->records[shard->records[i]];

        if (lies_here(record, device)) {
            add_record(&list, record, addrs[shard->records[i]], follows);
        }
        follows = lies_here(record, device) || (follows && record->bytes == 0);
    }
    settle_single(&list);
    list.stale = list.piece_count > 0;
    *out = list;
    return TCK_OK;
}

static struct move *find_move(const struct copy_plan *list, uint64_t image_offset)
{
    uint32_t low = 0, high = list->move_count;

    while (low + 1 < high) {
        uint32_t middle = low + (high - low) / 2;

        if (list->moves[middle].image_offset <= image_offset) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &list->moves[low];
}

void copy_plan_relocate(struct copy_plan *list, const struct record *record, uint64_t addr)
{
    struct move *move = find_move(list, record->image_offset);
    uint64_t offset = record->image_offset - move->image_offset;

    if (move->addr != 0) {
        move->addr = addr;
        return;
    }
    for (uint32_t i = move->first; i < move->first + move->count; i++) {
        struct gather_piece *piece = &list->pieces[i];

        if (piece->offset >= offset && piece->offset < offset + record->bytes) {
            piece->addr = addr + (piece->offset - offset);
        }
    }
    list->stale = true;
}

void copy_plan_free(struct copy_plan *list)
{
    free(list->pieces);
    free(list->moves);
    *list = (struct copy_plan){0};
}
