/* SPDX-License-Identifier: Apache-2.0
 * See assemble.h. */
#include "published/assemble.h"
#include "published/convert.h"
#include "published/tiles.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BUFFER_BYTES ((size_t)ASSEMBLE_ELEMENTS * ASSEMBLE_WIDEST)

tck_status_t assemble_begin(struct assembler *a, struct tck_published *published, struct error *err)
{
    *a = (struct assembler){published, malloc(BUFFER_BYTES), malloc(BUFFER_BYTES)};
    if (a->saved == NULL || a->converted == NULL) {
        assemble_end(a);
        return error_set(err, TCK_ERR_NOMEM, "no memory for two buffers of %zu bytes", BUFFER_BYTES);
    }
    return TCK_OK;
}

void assemble_end(struct assembler *a)
{
    free(a->saved);
    free(a->converted);
    *a = (struct assembler){0};
}

/* ---- one source -------------------------------------------------------------------------------------------------- */

static tck_status_t read_saved(const struct assembler *a, const struct source *source, const struct box *box,
                               uint8_t *to, struct error *err)
{
    const struct table *table = &a->published->table;
    tck_published_box_t want = {.struct_size = sizeof(want),
                                .key = entry_key(table, source->entry),
                                .dtype = (tck_dtype_t)source->entry->dtype,
                                .ndim = box->ndim};
    memcpy(want.global_shape, entry_global(table, source->entry), box->ndim * sizeof(uint64_t));
    memcpy(want.offset, box->at, sizeof(box->at));
    memcpy(want.local_shape, box->size, sizeof(box->size));
    tck_status_t status = tck_published_read_box(a->published, &want, to);
    if (status != TCK_OK) {
        *err = a->published->error;
    }
    return status;
}

static tck_status_t read_flat(const struct assembler *a, const struct source *source, const struct box *box,
                              struct error *err)
{
    uint32_t element = dtype_bytes((tck_dtype_t)source->entry->dtype);
    struct runs runs = runs_of(box, &source->held, box, element);
    uint64_t from = 0, to = 0;
    tck_status_t status = TCK_OK;
    while (status == TCK_OK && runs_next(&runs, &from, &to)) {
        const struct box run = {.ndim = 1, .at = {from / element}, .size = {runs.bytes / element}};
        status = read_saved(a, source, &run, a->saved + to, err);
    }
    return status;
}

/* A box of the whole tensor that the source contains; *out is where it is, until the next read. */
static tck_status_t read_source(const struct assembler *a, const struct source *source, const struct box *piece,
                                tck_dtype_t dtype, const uint8_t **out, struct error *err)
{
    struct box held = *piece;
    tck_dtype_t saved = (tck_dtype_t)source->entry->dtype;
    for (uint32_t d = 0; d < held.ndim; d++) {
        held.at[d] = piece->at[d] - source->at.at[d] + source->from.at[d];
    }
    tck_status_t status = source->flat ? read_flat(a, source, &held, err) : read_saved(a, source, &held, a->saved, err);
    if (status != TCK_OK) {
        return status;
    }
    if (saved != dtype) {
        convert(a->converted, dtype, a->saved, saved, box_count(piece));
    }
    *out = saved != dtype ? a->converted : a->saved;
    return TCK_OK;
}

/* ---- a box ------------------------------------------------------------------------------------------------------- */

static void put(uint8_t *to, const struct box *want, const uint8_t *from, const struct box *piece, uint32_t element)
{
    struct runs runs = runs_of(piece, piece, want, element);
    uint64_t from_byte = 0, to_byte = 0;
    while (runs_next(&runs, &from_byte, &to_byte)) {
        memcpy(to + to_byte, from + from_byte, runs.bytes);
    }
}

static tck_status_t plan(const struct whole *whole, const struct box *want, struct reshard *out, struct error *err)
{
    struct box *boxes = calloc(whole->source_count, sizeof(*boxes));
    if (boxes == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for %" PRIu32 " parts", whole->source_count);
    }
    for (uint32_t i = 0; i < whole->source_count; i++) {
        boxes[i] = whole->sources[i].at;
    }
    tck_status_t status = reshard_find(want, boxes, whole->source_count, out, err);
    free(boxes);
    return status;
}

tck_status_t assemble_read(const struct assembler *a, const struct whole *whole, const struct box *want,
                           tck_dtype_t dtype, uint8_t *to, struct error *err)
{
    struct reshard pieces = {0};
    const uint8_t *from = NULL;
    tck_status_t status = plan(whole, want, &pieces, err);
    for (uint32_t i = 0; i < pieces.count && status == TCK_OK; i++) {
        const struct reshard_piece *piece = &pieces.pieces[i];
        status = read_source(a, &whole->sources[piece->have], &piece->box, dtype, &from, err);
        if (status == TCK_OK) {
            put(to, want, from, &piece->box, dtype_bytes(dtype));
        }
    }
    reshard_free(&pieces);
    return status;
}

/* ---- parts that several have ------------------------------------------------------------------------------------- */

/* Two sources of a tensor, and a buffer for what the first one holds. */
struct pair {
    const struct whole *whole;
    const struct source *one, *other;
    uint8_t *kept;
};

static tck_status_t compare_slab(const struct assembler *a, const struct pair *pair, const struct box *slab,
                                 struct error *err)
{
    size_t bytes = box_count(slab) * dtype_bytes(pair->whole->dtype);
    const uint8_t *at = NULL;
    tck_status_t status = read_source(a, pair->one, slab, pair->whole->dtype, &at, err);
    if (status == TCK_OK) {
        memcpy(pair->kept, at, bytes);
        status = read_source(a, pair->other, slab, pair->whole->dtype, &at, err);
    }
    if (status == TCK_OK && memcmp(pair->kept, at, bytes) != 0) {
        return error_set(err, TCK_ERR_LAYOUT,
                         "\"%.200s\": rank %" PRIu32 " and rank %" PRIu32 " hold the same part of "
                         "it with different values",
                         pair->whole->name, pair->one->rank, pair->other->rank);
    }
    return status;
}

static tck_status_t compare(const struct assembler *a, const struct pair *pair, const struct box *common,
                            struct error *err)
{
    struct tiles slabs = tiles_of(common->size, common->ndim, ASSEMBLE_ELEMENTS);
    struct box slab;
    tck_status_t status = TCK_OK;
    while (status == TCK_OK && tiles_next(&slabs, &slab)) {
        for (uint32_t d = 0; d < slab.ndim; d++) {
            slab.at[d] += common->at[d];
        }
        status = compare_slab(a, pair, &slab, err);
    }
    return status;
}

/* What source number `n` shares with those before it. Those that have exactly the same box are equal already, so one
 * of them suffices. */
static tck_status_t check_source(const struct assembler *a, const struct whole *whole, uint32_t n, uint8_t *kept,
                                 struct error *err)
{
    const struct source *source = &whole->sources[n];
    tck_status_t status = TCK_OK;
    struct box common;
    for (uint32_t i = 0; i < n && status == TCK_OK; i++) {
        const struct pair pair = {whole, &whole->sources[i], source, kept};
        if (box_intersect(&whole->sources[i].at, &source->at, &common)) {
            status = compare(a, &pair, &common, err);
        }
        if (box_is(&whole->sources[i].at, &source->at)) {
            break;
        }
    }
    return status;
}

tck_status_t assemble_check(const struct assembler *a, const struct whole *whole, struct error *err)
{
    uint8_t *kept = whole->source_count < 2 ? NULL : malloc(BUFFER_BYTES);
    tck_status_t status = whole->source_count >= 2 && kept == NULL
                              ? error_set(err, TCK_ERR_NOMEM, "no memory for %zu bytes", BUFFER_BYTES)
                              : TCK_OK;
    for (uint32_t n = 1; n < whole->source_count && status == TCK_OK; n++) {
        status = check_source(a, whole, n, kept, err);
    }
    free(kept);
    return status;
}
