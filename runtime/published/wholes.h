/* SPDX-License-Identifier: Apache-2.0
 * The weights of a version as whole tensors: which ones there are, and which saved entries each consists of. */
#ifndef TCK_READER_WHOLES_H
#define TCK_READER_WHOLES_H

#include "published/export_map.h"
#include "published/published.h"

/* A box of a whole tensor that was saved under one key. */
struct source {
    const struct entry *entry; /* an entry of the key, in the version's table */
    bool flat;                 /* what was saved is the tensor `held` as one dimension */
    uint32_t rank;             /* whose map declares it; NONE32: the version has no maps */
    struct box held, from, at; /* as in struct map_part */
};

struct whole {
    char *name;        /* owned */
    tck_dtype_t dtype; /* of the model's tensor; sources may have another one */
    struct box box;    /* begins at 0 */
    uint32_t source_count;
    struct source *sources; /* owned: of boxes that several contain, the first one is read */
};

struct wholes {
    uint32_t count;
    struct whole *list;    /* by name, without those that are not to be exported */
    struct export_map map; /* empty if the version has none */
};

/* With maps: what these declare. Without: all tensors except those that are known not to be weights, that is, those of
 * a single rank, and masters and optimizer state of a tensor of the version. Each is checked to be whole. */
must_check tck_status_t wholes_find(struct tck_published *published, const tck_export_params_t *params,
                                    struct wholes *out, struct error *err);
void wholes_free(struct wholes *wholes);

#endif
