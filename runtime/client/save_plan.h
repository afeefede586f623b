/* SPDX-License-Identifier: Apache-2.0
 * What a snapshot copies, worked out once: no look-up and no allocation is left for the step path. */
#ifndef TCK_CLIENT_SAVE_PLAN_H
#define TCK_CLIENT_SAVE_PLAN_H

#include "client/cuda.h"
#include "client/slot_copy.h"

/* Made at registration; the step path only reads it and fills the staging area. */
struct save_plan {
    struct copy_list *lists; /* per shard of the layout */
    uint32_t list_count;
    uint32_t *eager; /* records that are copied inside the save call */
    uint32_t eager_count;
    uint8_t *staging;  /* their copies */
    uint8_t **addrs;   /* per record in host memory: where a snapshot reads it, in staging or in place */
    struct cuda *cuda; /* the caller's: what copies records on devices; NULL: there are none */
    struct made_root {
        bool made;
        struct hash128 root;
    } * roots; /* per shard: what digests made on devices say of the snapshot under way */
};

must_check tck_status_t save_plan_build(const struct layout *layout, struct save_plan *out, struct error *err);
/* The record's address in the layout has changed. */
void save_plan_move(struct save_plan *plan, const struct layout *layout, uint32_t record);
void save_plan_free(struct save_plan *plan);

#endif
