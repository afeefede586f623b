/* SPDX-License-Identifier: Apache-2.0
 * The tensors of an export: which tensors of a version, under which names, in which file and where in it. */
#ifndef TCK_READER_WEIGHTS_H
#define TCK_READER_WEIGHTS_H

#include "published/family.h"
#include "published/wholes.h"

#define WEIGHTS_FILE_NAME 64

struct weight {
    const struct whole *whole; /* of which it is made */
    struct renamed as;         /* owned */
    tck_dtype_t dtype;         /* as it is written */
    uint64_t bytes, begin;     /* begin: from where data begins in its file */
    uint32_t file;
};

struct weights {
    uint32_t count, file_count;
    struct weight *list; /* owned: by file, and there in the order of their bytes */
    uint64_t bytes;
    struct wholes wholes; /* owned */
};

/* Finds, names and places the tensors. Without rules they keep their names. */
must_check tck_status_t weights_choose(struct tck_published *published, const tck_export_params_t *params,
                                       const struct family_rules *rules, struct weights *out, struct error *err);
void weights_free(struct weights *weights);

/* "model.safetensors", or "model-00001-of-00003.safetensors". */
void weights_file_name(const struct weights *weights, uint32_t file, char out[WEIGHTS_FILE_NAME]);
/* The header of a file, preceded by its length; the caller frees it. NULL if out of memory. */
char *weights_header(const struct weights *weights, uint32_t file, size_t *len_out);
/* model.safetensors.index.json, the same. */
char *weights_index(const struct weights *weights, size_t *len_out);

#endif
