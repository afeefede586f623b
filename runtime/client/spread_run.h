/* SPDX-License-Identifier: Apache-2.0
 * Carries out the routes: all ranks learn what each of them has, the bytes are passed on, and every image is checked
 * against its digest before any is used. */
#ifndef TCK_CLIENT_SPREAD_RUN_H
#define TCK_CLIENT_SPREAD_RUN_H

#include "client/spread_ops.h"

struct spread_run {
    const struct oob *oob;
    const struct world *world;
    const struct spread_ops *ops;
    uint32_t timeout_ms;
    uint32_t slow_bytes; /* these two as in struct spread_params */
};

/* This rank's shards, in the order of the world's. */
struct spread_own {
    uint32_t count;
    struct hash128 *roots; /* zero: not here */
    uint8_t **images;      /* those that are here; NULL for the others, which are filled in afterwards */
    bool *came;            /* allocated by spread_run */
};

/* Collective. Afterwards every rank has all its shards, checked; or all ranks fail together, with images as they were.
 * Ranks that neither lack a shard nor send one take part only in the exchanges of all ranks. */
must_check tck_status_t spread_run(const struct spread_run *run, struct spread_own *own, struct error *err);
/* Frees the images that were received. */
void spread_forget(const struct spread_run *run, struct spread_own *own);

#endif
