/* SPDX-License-Identifier: Apache-2.0
 * What the ranks of a training have declared of its weights: of which keys, and of which places in them, each whole
 * tensor of the model consists. A text of JSON per rank (docs/formats.md, "Export map"). Pure. */
#ifndef TCK_READER_EXPORT_MAP_H
#define TCK_READER_EXPORT_MAP_H

#include "base/layout.h"
#include "recovery/reshard.h"

#define EXPORT_MAP_NAME "tierckpt.export" /* the blob of a rank, after "rank<r>/" */

/* A box of a whole tensor, and where its elements are. */
struct map_part {
    char *key;       /* of what was saved */
    uint32_t rank;   /* whose map says so */
    struct box held; /* the tensor that was saved under the key, perhaps flattened; it begins at 0 */
    struct box from; /* the part of that */
    struct box at;   /* its place in the whole tensor; of the same size */
};

struct map_tensor {
    char *name;
    char *refused; /* why it cannot be exported; NULL: it can */
    tck_dtype_t dtype;
    struct box whole; /* begins at 0 */
    uint32_t rank;    /* the first one whose map has it */
    uint32_t part_count;
    struct map_part *parts;
};

/* A property of the model, such as the number of its attention heads. */
struct map_number {
    char *name;
    uint64_t value;
};

struct export_map {
    uint32_t count, cap;
    struct map_tensor *tensors; /* after export_map_join: by name, each once */
    uint32_t number_count;
    struct map_number *numbers;
};

/* Adds what a rank has declared. *same_out is the rank whose map this one is, NONE32 if it has its own. */
must_check tck_status_t export_map_add(struct export_map *map, const char *text, size_t len, uint32_t rank,
                                       uint32_t *same_out, struct error *err);
/* Joins the parts that several ranks have of a tensor. TCK_ERR_LAYOUT if they do not belong together. */
must_check tck_status_t export_map_join(struct export_map *map, struct error *err);
void export_map_free(struct export_map *map);

#endif
