/* SPDX-License-Identifier: Apache-2.0
 * The contents of the files of a published version, according to their headers. */
#ifndef TCK_READER_TABLE_H
#define TCK_READER_TABLE_H

#include "base/layout.h"
#include "published/headers.h"
#include "recovery/reshard.h"

struct entry {
    uint64_t key;   /* its place in the table's text */
    uint64_t dims;  /* index into the table's numbers: global shape, offset, local shape, ndim of each */
    uint64_t begin; /* from the start of the file */
    uint64_t bytes; /* in the file; for a blob including its length and its whole capacity */
    uint32_t file;
    uint32_t rank; /* the only rank that had the shard; NONE32: it belonged to a replica group */
    uint8_t dtype, ndim;
    bool blob;
};

struct table {
    size_t count, cap;
    struct entry *entries; /* by key, place in the tensor, shared ones first, rank; equal shared tensors once */
    size_t text_len, text_cap;
    char *text;
    size_t dim_count, dim_cap;
    uint64_t *dims;
    uint32_t *ranks; /* of each file */
};

/* Reads and checks the header of each file, from .index if the version has one that is whole. */
must_check tck_status_t table_read(struct table *table, struct chunks *chunks, struct error *err);
/* The same of headers that have been read before, of all files. */
must_check tck_status_t table_of(struct table *table, struct chunks *chunks, const struct headers *headers,
                                 struct error *err);
void table_free(struct table *table);

/* The entries of a key, NULL if there is none. */
const struct entry *table_find(const struct table *table, const char *key, size_t *count_out);
const char *entry_key(const struct table *table, const struct entry *entry);
struct box entry_box(const struct table *table, const struct entry *entry);
const uint64_t *entry_global(const struct table *table, const struct entry *entry);

#endif
