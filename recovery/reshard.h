/* SPDX-License-Identifier: Apache-2.0
 * From the pieces of one sharding to those of another: which part of a wanted box is in which source box, and the
 * places of its bytes in both. Pure. */
#ifndef TCK_RECOVERY_RESHARD_H
#define TCK_RECOVERY_RESHARD_H

#include "base/status.h"
#include <stdbool.h>

/* A rectangle of a whole tensor, in elements. With ndim 0 it is the one element of a scalar. at + size never
 * overflows, nor does the count of its elements. */
struct box {
    uint32_t ndim;
    uint64_t at[TCK_MAX_NDIM], size[TCK_MAX_NDIM];
};

uint64_t box_count(const struct box *box); /* of its elements */
bool box_is(const struct box *a, const struct box *b);
/* False, and *out is untouched, if they share no element. */
bool box_intersect(const struct box *a, const struct box *b, struct box *out);

/* A part of the wanted box that one of the source boxes contains. */
struct reshard_piece {
    uint32_t have;
    struct box box;
};

struct reshard {
    uint32_t count, cap;
    struct reshard_piece *pieces; /* owned: disjoint, together the wanted box */
    bool covered;
    struct box missing; /* if not covered: some part of it that is in none of them */
};

/* A part that several boxes contain comes from the first of them in the list. All boxes have want's ndim.
 * TCK_ERR_NOMEM, or TCK_ERR_UNSUPPORTED if they cut each other into more parts than any sharding does. */
must_check tck_status_t reshard_find(const struct box *want, const struct box *have, uint32_t have_count,
                                     struct reshard *out, struct error *err);
void reshard_free(struct reshard *reshard);

/* Iterates over the runs of bytes in which a piece is contiguous both in from and in to, two boxes that contain it and
 * are stored in C order. The runs come in the order of their places and have one length. */
struct runs {
    uint64_t bytes; /* of each */
    uint32_t ndim;  /* dimensions that are counted through, the others are inside a run */
    uint64_t size[TCK_MAX_NDIM], index[TCK_MAX_NDIM], from_stride[TCK_MAX_NDIM], to_stride[TCK_MAX_NDIM]; /* bytes */
    uint64_t from, to;
    bool done;
};

struct runs runs_of(const struct box *piece, const struct box *from, const struct box *to, uint32_t element_bytes);
/* Where the next run begins, in bytes from the start of each box. False after the last. */
bool runs_next(struct runs *runs, uint64_t *from_out, uint64_t *to_out);

#endif
