/* SPDX-License-Identifier: Apache-2.0
 * The copies between one device and one shard's image, planned once. Large records are copied one by one. Small ones
 * that follow each other in the image are gathered on the device, into a buffer laid out like that part of the
 * image, and copied together. Pure. */
#ifndef TCK_CLIENT_CUDA_MOVES_H
#define TCK_CLIENT_CUDA_MOVES_H

#include "base/layout.h"
#include "cuda/calls.h"

#define MOVE_SMALL_BYTES   (256u << 10) /* smaller records are gathered, */
#define MOVE_GATHERED_MOST (16u << 20)  /* at most this much of an image at a time */

/* One copy between device and image. */
struct move {
    uint64_t image_offset, bytes;
    uint64_t addr;         /* on the device, or 0: gathered from, or scattered to, */
    uint32_t first, count; /* these pieces */
    bool several;          /* records */
    bool
        gaps; /* there are bytes of the image between them, which become zero; image_put_heads writes over them later */
};

struct copy_plan {
    struct gather_piece *pieces; /* offsets count from the start of their move in the image */
    struct move *moves;          /* in the order of the image */
    uint32_t piece_count, move_count;
    struct gather_piece *table; /* the pieces' copy on the device; freed by whoever allocated it */
    bool stale;                 /* it differs from the pieces */
};

/* Plans the copies of the shard's records on this device; addrs: the address of each record of the layout. */
must_check tck_status_t copy_plan_build(const struct layout *layout, const struct shard *shard, int device,
                                        const uint64_t *addrs, struct copy_plan *out, struct error *err);
/* Updates the plan after the record of this shard has moved. */
void copy_plan_relocate(struct copy_plan *list, const struct record *record, uint64_t addr);
void copy_plan_free(struct copy_plan *list);

#endif
