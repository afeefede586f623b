/* SPDX-License-Identifier: Apache-2.0
 * From a rank's records to its shards and their file images. Made once at registration: this is the cached save plan.
 *
 * A shard is all records of a rank that share one replica group. Its image is a safetensors file: an 8-byte length, a
 * JSON header padded with spaces so that data begins at a multiple of 4096, then the records: 64-byte aligned, 4096
 * from 1 MiB on, large ones first, then by key; gaps are U8 entries "__pad_<n>". A blob is a 1-D U8 entry of 8 +
 * capacity bytes: its length (u64 LE), its bytes, zeros. "__metadata__" holds DCP_SHARDING_INFO for every entry, and
 * the global shape of every tensor (docs/formats.md). The image header depends on the record table alone, so twins
 * print the same bytes. */
#ifndef TCK_BASE_LAYOUT_H
#define TCK_BASE_LAYOUT_H

#include "base/version.h"

#define BLOB_PREFIX_BYTES 8
#define IMAGE_ALIGN       4096 /* every image's size is a multiple of this (a filler ends it) */

struct record {
    char *key;   /* owned */
    char *group; /* owned; "" : this rank's alone */
    tck_dtype_t dtype;
    uint32_t ndim;
    uint64_t global_shape[TCK_MAX_NDIM], offset[TCK_MAX_NDIM], local_shape[TCK_MAX_NDIM];
    bool blob;  /* local_shape[0] is the capacity + BLOB_PREFIX_BYTES */
    bool eager; /* blobs always are */
    tck_reshard_t reshard;
    tck_memory_t memory;
    int device; /* of TCK_CUDA memory */
    void *addr; /* of a blob: the library's own buffer of local_shape[0] bytes, prefix included */
    uint64_t bytes;
    /* Set by layout_build: */
    uint32_t shard;        /* index into layout.shards */
    uint64_t image_offset; /* from the start of the image */
};

struct shard {
    struct hash128 id; /* of the group and the record table; of a private group ("") also of rank and world size */
    char *group;       /* owned */
    uint32_t record_count;
    uint32_t *records; /* owned: indices into layout.records in image order */
    uint8_t *header;   /* owned: the first header_bytes bytes of the image, length prefix and padding included */
    uint64_t header_bytes;
    uint64_t image_bytes; /* multiple of IMAGE_ALIGN */
};

struct layout {
    uint32_t record_count, record_cap;
    struct record *records; /* in the order they were added */
    uint32_t shard_count;
    struct shard *shards; /* sorted by id */
};

uint32_t dtype_bytes(tck_dtype_t dtype);
const char *dtype_name(tck_dtype_t dtype); /* safetensors' name */
bool dtype_parse(const char *name, tck_dtype_t *out);

/* Copies key and group. Names the key in every error: bad key, shape, overflow. index_out may be NULL. */
must_check tck_status_t layout_add(struct layout *layout, const tck_record_t *record, uint32_t *index_out,
                                   struct error *err);
must_check tck_status_t layout_add_blob(struct layout *layout, const char *key, uint64_t capacity, const char *group,
                                        uint32_t *index_out, struct error *err);
/* Undoes the newest of them. */
void layout_remove_last(struct layout *layout);
/* Sorts, splits, assigns offsets and ids, prints the image headers. A key twice in one shard (two pieces of one tensor)
 * opens a second shard for the same group: a safetensors file holds a key once. TCK_ERR_INVAL names the key that was
 * added twice (same group, offset and shape) or whose pieces differ in dtype or global shape. */
must_check tck_status_t layout_build(struct layout *layout, uint32_t rank, uint32_t world_size, struct error *err);
void layout_free(struct layout *layout);

/* Checks that the first len bytes of an image are a well-formed safetensors header with our rules (total: any input).
 * Tells where data begins and the size of the whole file. Used before trusting a file or a pulled image. */
must_check tck_status_t image_check(const void *image, uint64_t len, uint64_t *data_start_out, uint64_t *bytes_out,
                                    struct error *err);

/* What an image holds, fillers left out. */
struct image_entry {
    const char *key; /* this and the arrays: valid during the call */
    tck_dtype_t dtype;
    uint32_t ndim;
    const uint64_t *global_shape, *offset, *shape; /* ndim numbers each */
    uint64_t begin, bytes;                         /* from the start of the image */
    bool blob;
};

struct image_visit {
    tck_status_t (*entry)(void *ctx, const struct image_entry *entry, struct error *err);
    void *ctx;
};

/* The size of the header, length prefix included, of an image whose first len bytes are at hand, at least 8. */
must_check tck_status_t image_header_bytes(const void *image, uint64_t len, uint64_t image_bytes, uint64_t *out,
                                           struct error *err);
/* The same check as image_check of a header that is there whole, and a call for each entry, in the order of their
 * bytes. An error of a call ends it. What was seen counts only if the whole header is found good. */
must_check tck_status_t image_walk(const void *image, uint64_t len, const struct image_visit *visit,
                                   uint64_t *bytes_out, struct error *err);

/* The id of a shard: of its group, the number of the piece among those of its key, and the hash of its image's header;
 * of a private one ("") also of rank and world size, else both 0. */
struct hash128 shard_id(const char *group, uint32_t piece, uint32_t rank, uint32_t world_size, struct hash128 table);

#endif
