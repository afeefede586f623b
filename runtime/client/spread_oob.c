/* SPDX-License-Identifier: Apache-2.0
 * Passes shards over the caller's allgather: the root contributes a piece of the image, the others nothing. */
#include "client/spread_ops.h"

#include <stdlib.h>
#include <string.h>

#define GATHER_BYTES (8u << 20) /* in one allgather, of all ranks together */
#define PIECE_MIN    4096u
#define PIECE_MAX    (1u << 20)

struct spread_oob_way {
    struct spread_way way;
    struct spread_params params;
    uint32_t piece_bytes;
    uint8_t *mine, *all; /* one piece, one of each rank */
};

static uint32_t piece_bytes_for(uint32_t world_size)
{
    uint32_t bytes = GATHER_BYTES / world_size;

    return bytes < PIECE_MIN ? PIECE_MIN : bytes > PIECE_MAX ? PIECE_MAX : bytes;
}

static void oob_close(struct spread_way *way)
{
    struct spread_oob_way *w = (struct spread_oob_way *)way;

    if (w != NULL) {
        free(w->mine);
        free(w->all);
        free(w);
    }
}

static struct spread_oob_way *oob_new(const struct spread_params *params)
{
    struct spread_oob_way *w = calloc(1, sizeof(*w));

    if (w == NULL) {
        return NULL;
    }
    w->way.ops = &spread_oob;
    w->params = *params;
    w->piece_bytes = piece_bytes_for(params->oob->world_size);
    w->mine = calloc(1, w->piece_bytes);
    w->all = malloc((size_t)w->piece_bytes * params->oob->world_size);
    if (w->mine == NULL || w->all == NULL) {
        oob_close(&w->way);
        return NULL;
    }
    return w;
}

static tck_status_t oob_open(const struct spread_params *params, struct spread_way **out, struct error *err)
{
    struct spread_oob_way *w = oob_new(params);
    tck_status_t status =
        w == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory to pass shards over the allgather") : TCK_OK;

    status = oob_agree(params->oob, status, err);
    if (status != TCK_OK) {
        oob_close(w == NULL ? NULL : &w->way);
        return status;
    }
    *out = &w->way;
    return TCK_OK;
}

/* Every rank takes part in each exchange, even if it needs none of its bytes. */
static tck_status_t oob_pass(struct spread_way *way, const struct spread_route *route, uint8_t *image,
                             struct error *err)
{
    struct spread_oob_way *w = (struct spread_oob_way *)way;
    const struct oob *oob = w->params.oob;
    uint64_t bytes = w->params.world->shards[route->shard].image_bytes;

    for (uint64_t at = 0; at < bytes; at += w->piece_bytes) {
        size_t len = bytes - at < w->piece_bytes ? bytes - at : w->piece_bytes;
        tck_status_t status;

        if (image != NULL && oob->rank == route->root) {
            memcpy(w->mine, image + at, len);
        }
        status = oob_exchange(oob, TCK_OK, w->mine, w->all, len, err);
        if (status != TCK_OK) {
            return status;
        }
        if (image != NULL && oob->rank != route->root) {
            memcpy(image + at, w->all + route->root * len, len);
        }
    }
    return TCK_OK;
}

static tck_status_t oob_finish(struct spread_way *way, struct error *err)
{
    (void)way;
    (void)err;
    return TCK_OK; /* every exchange has waited for its bytes */
}

static void oob_abort(struct spread_way *way)
{
    (void)way;
}

const struct spread_ops spread_oob = {
    .name = "the ranks' own allgather",
    .open = oob_open,
    .pass = oob_pass,
    .finish = oob_finish,
    .abort = oob_abort,
    .close = oob_close,
};
