/* SPDX-License-Identifier: Apache-2.0
 * Cuts boxes by boxes. What is still wanted is a list of disjoint boxes. Each source box takes its part of them and
 * leaves at most two remainders per dimension. */
#include "recovery/reshard.h"

#include <stdlib.h>
#include <string.h>

#define PARTS_MAX (1u << 20) /* of a wanted box; a grid of shards makes as many as it has shards */

/* ---- boxes ----------------------------------------------------------------------------------------------------- */

uint64_t box_count(const struct box *box)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < box->ndim; d++) {
        count *= box->size[d];
    }
    return count;
}

bool box_is(const struct box *a, const struct box *b)
{
    size_t bytes = a->ndim * sizeof(a->at[0]);
    return a->ndim == b->ndim && memcmp(a->at, b->at, bytes) == 0 && memcmp(a->size, b->size, bytes) == 0;
}

static uint64_t end_of(const struct box *box, uint32_t d)
{
    return box->at[d] + box->size[d];
}

bool box_intersect(const struct box *a, const struct box *b, struct box *out)
{
    struct box both = {.ndim = a->ndim};
    for (uint32_t d = 0; d < a->ndim; d++) {
        uint64_t begin = a->at[d] > b->at[d] ? a->at[d] : b->at[d];
        uint64_t end = end_of(a, d) < end_of(b, d) ? end_of(a, d) : end_of(b, d);
        if (begin >= end) {
            return false;
        }
        both.at[d] = begin;
        both.size[d] = end - begin;
    }
    *out = both;
    return true;
}

/* ---- what is still wanted -------------------------------------------------------------------------------------- */

struct parts {
    uint32_t count, cap;
    struct box *boxes;
};

static tck_status_t grow(void **array, uint32_t *cap, size_t member_bytes, struct error *err)
{
    uint32_t more = *cap == 0 ? 16 : 2 * *cap;
    if (more > PARTS_MAX) {
        return error_set(err, TCK_ERR_UNSUPPORTED, "a tensor is cut into more than %u parts", PARTS_MAX);
    }
    void *grown = reallocarray(*array, more, member_bytes);
    if (grown == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for %u parts of a tensor", more);
    }
    *array = grown;
    *cap = more;
    return TCK_OK;
}

static tck_status_t parts_add(struct parts *parts, const struct box *box, struct error *err)
{
    void *boxes = parts->boxes;
    tck_status_t status = TCK_OK;
    if (parts->count == parts->cap) {
        status = grow(&boxes, &parts->cap, sizeof(*parts->boxes), err);
        parts->boxes = boxes;
    }
    if (status == TCK_OK) {
        parts->boxes[parts->count++] = *box;
    }
    return status;
}

static tck_status_t pieces_add(struct reshard *r, uint32_t have, const struct box *box, struct error *err)
{
    void *pieces = r->pieces;
    tck_status_t status = TCK_OK;
    if (r->count == r->cap) {
        status = grow(&pieces, &r->cap, sizeof(*r->pieces), err);
        r->pieces = pieces;
    }
    if (status == TCK_OK) {
        r->pieces[r->count++] = (struct reshard_piece){.have = have, .box = *box};
    }
    return status;
}

/* Adds the parts of box outside hole, which lies inside it. */
static tck_status_t add_rests(struct parts *parts, const struct box *box, const struct box *hole, struct error *err)
{
    struct box left = *box;
    tck_status_t status = TCK_OK;
    for (uint32_t d = 0; d < box->ndim && status == TCK_OK; d++) {
        struct box below = left, above = left;
        below.size[d] = hole->at[d] - left.at[d];
        above.at[d] = end_of(hole, d);
        above.size[d] = end_of(&left, d) - end_of(hole, d);
        if (below.size[d] > 0) {
            status = parts_add(parts, &below, err);
        }
        if (status == TCK_OK && above.size[d] > 0) {
            status = parts_add(parts, &above, err);
        }
        left.at[d] = hole->at[d];
        left.size[d] = hole->size[d];
    }
    return status;
}

/* Assigns to one source box its part of what is still wanted. */
static tck_status_t take(struct parts *wanted, const struct box *have, uint32_t number, struct reshard *out,
                         struct error *err)
{
    for (uint32_t i = 0; i < wanted->count;) {
        struct box part = wanted->boxes[i], both;
        if (!box_intersect(&part, have, &both)) {
            i++;
            continue;
        }
        wanted->boxes[i] = wanted->boxes[--wanted->count]; /* the remainders do not overlap this box */
        tck_status_t status = pieces_add(out, number, &both, err);
        if (status == TCK_OK) {
            status = add_rests(wanted, &part, &both, err);
        }
        if (status != TCK_OK) {
            return status;
        }
    }
    return TCK_OK;
}

tck_status_t reshard_find(const struct box *want, const struct box *have, uint32_t have_count, struct reshard *out,
                          struct error *err)
{
    struct parts wanted = {0};
    struct reshard found = {0};
    tck_status_t status = box_count(want) == 0 ? TCK_OK : parts_add(&wanted, want, err);
    for (uint32_t i = 0; i < have_count && wanted.count > 0 && status == TCK_OK; i++) {
        status = take(&wanted, &have[i], i, &found, err);
    }
    if (status == TCK_OK) {
        found.covered = wanted.count == 0;
        found.missing = found.covered ? (struct box){0} : wanted.boxes[0];
        *out = found;
    } else {
        reshard_free(&found);
    }
    free(wanted.boxes);
    return status;
}

void reshard_free(struct reshard *reshard)
{
    free(reshard->pieces);
    *reshard = (struct reshard){0};
}

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

struct runs runs_of(const struct box *piece, const struct box *from, const struct box *to, uint32_t element_bytes)
{
    struct runs runs = {.ndim = piece->ndim, .done = box_count(piece) == 0};
    uint64_t from_stride = element_bytes, to_stride = element_bytes;
    for (uint32_t d = piece->ndim; d-- > 0;) {
        runs.size[d] = piece->size[d];
        runs.from_stride[d] = from_stride;
        runs.to_stride[d] = to_stride;
        runs.from += (piece->at[d] - from->at[d]) * from_stride;
        runs.to += (piece->at[d] - to->at[d]) * to_stride;
        from_stride *= from->size[d];
        to_stride *= to->size[d];
    }
    runs.bytes = element_bytes;
    while (runs.ndim > 0 && runs.from_stride[runs.ndim - 1] == runs.bytes &&
           runs.to_stride[runs.ndim - 1] == runs.bytes) {
        runs.bytes *= runs.size[--runs.ndim];
    }
    return runs;
}

bool runs_next(struct runs *runs, uint64_t *from_out, uint64_t *to_out)
{
    if (runs->done) {
        return false;
    }
    *from_out = runs->from;
    *to_out = runs->to;
    uint32_t d = runs->ndim;
    while (d-- > 0) {
        runs->from += runs->from_stride[d];
        runs->to += runs->to_stride[d];
        if (++runs->index[d] < runs->size[d]) {
            return true;
        }
        runs->from -= runs->size[d] * runs->from_stride[d];
        runs->to -= runs->size[d] * runs->to_stride[d];
        runs->index[d] = 0;
    }
    runs->done = true;
    return true;
}
