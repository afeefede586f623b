/* SPDX-License-Identifier: Apache-2.0
 * A mapping from the names of a training framework's tensors to those of a model family, as a user may write it
 * (docs/published.md, "Other names"). A rule cuts a tensor into ranges of rows, which it may then transpose. Pure. */
#ifndef TCK_READER_FAMILY_H
#define TCK_READER_FAMILY_H

#include "published/export_map.h"

#define RENAMED_MAX 3 /* tensors that are made of one */

struct rows {
    uint64_t from, count;
};

/* A tensor that is made of another one. */
struct renamed {
    char *name;      /* owned */
    bool transposed; /* after the rows were chosen */
    struct box box;  /* begins at 0 */
    uint32_t count;
    struct rows *rows; /* owned: of dimension 0, one after the other; without dimensions NULL */
};

struct family_rules;

/* Reads the text of a mapping file. *base_out is the name of the mapping that it extends; NULL: none. It lives as long
 * as the rules. */
must_check tck_status_t family_parse(const char *text, size_t len, struct family_rules **out, const char **base_out,
                                     struct error *err);
/* Appends the rules of a base, which apply to what no rule before them fits. Takes over base. */
must_check tck_status_t family_extend(struct family_rules *rules, struct family_rules *base, struct error *err);
void family_free(struct family_rules *rules);

/* What becomes of a tensor: *count_out is 0 if it is left out. Numbers that the rules do not give are those of the map.
 * TCK_ERR_NOENT: no rule fits; the error names the tensor. */
must_check tck_status_t family_apply(const struct family_rules *rules, const struct export_map *map, const char *name,
                                     const struct box *box, struct renamed out[RENAMED_MAX], uint32_t *count_out,
                                     struct error *err);
void renamed_free(struct renamed *renamed);

#endif
