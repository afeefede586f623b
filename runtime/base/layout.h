/* SPDX-License-Identifier: Apache-2.0
 * From a rank's records to its shards and their file images. Built once, at registration: this is the cached save plan.
 */
#ifndef TCK_BASE_LAYOUT_H
#define TCK_BASE_LAYOUT_H

#include "base/record.h"

struct layout {
    uint32_t record_count, record_cap;
    struct record *records; /* in the order they were added */
    uint32_t shard_count;
    struct shard *shards; /* sorted by id */
};

/* Copies key, group and head. Names the key in every error: bad key, shape, overflow. index_out may be NULL. */
must_check tck_status_t layout_add(struct layout *layout, const tck_record_t *record, uint32_t *index_out,
                                   struct error *err);
must_check tck_status_t layout_add_blob(struct layout *layout, const char *key, uint64_t capacity, const char *group,
                                        uint32_t *index_out, struct error *err);
/* Removes the record that was added last. */
void layout_remove_last(struct layout *layout);
/* Records of a replica group that have more bytes than this make several shards of about the same size. */
#define SHARED_SHARD_BYTES (UINT64_C(512) << 20)

/* Sorts, splits, assigns offsets and ids, prints the image headers. A key that comes twice in one shard (two pieces
 * of one tensor) opens a second shard for the same group, since a safetensors file can hold a key only once.
 * TCK_ERR_INVAL names the key that was added twice (same group, offset and shape) or whose pieces differ in dtype or
 * global shape. */
must_check tck_status_t layout_build(struct layout *layout, uint32_t rank, uint32_t world_size, struct error *err);
void layout_free(struct layout *layout);

/* The id of a shard is computed from its group, the number of the piece among those of its key, and the hash of its
 * image's header; for a private shard (group "") also from rank and world size, which are 0 otherwise. */
struct hash128 shard_id(const char *group, uint32_t piece, uint32_t rank, uint32_t world_size, struct hash128 table);

#endif
