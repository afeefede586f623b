/* SPDX-License-Identifier: Apache-2.0
 * The records of a rank and the shards that they make: the data that layout.c and image.c fill in.
 *
 * A shard is all records of a rank that share one replica group, or some of them if the group is large. Its image is
 * a safetensors file: an 8-byte length, a JSON header padded with spaces so that data begins at a multiple of 4096,
 * then the records: 64-byte aligned, 4096 from 1 MiB on, large ones first, then by key; gaps are U8 entries
 * "__pad_<n>". A blob is a 1-D U8 entry of 8 + capacity bytes: its length (u64 LE), its bytes, zeros. A record may have
 * a head: bytes that end where it begins, at the end of the gap before it. "__metadata__" holds DCP_SHARDING_INFO for
 * every entry, and the global shape of every tensor (docs/formats.md). The image header depends on the record table
 * alone, so twins print the same bytes. */
#ifndef TCK_BASE_RECORD_H
#define TCK_BASE_RECORD_H

#include "base/dtype.h"
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
    uint8_t *head; /* owned; NULL: none */
    uint32_t head_bytes;
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

#endif
