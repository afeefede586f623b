/* SPDX-License-Identifier: Apache-2.0
 * The safetensors image of a shard: where its records lie in it, and its header. Used by layout.c; readers of images
 * use image_check.h. */
#ifndef TCK_BASE_IMAGE_H
#define TCK_BASE_IMAGE_H

#include "base/record.h"

#define IMAGE_LARGE_BYTES (1u << 20) /* records of this size and above are aligned to IMAGE_ALIGN */
#define IMAGE_SMALL_ALIGN 64         /* the others to cache lines */
#define IMAGE_HEADER_MAX  100000000u /* what safetensors readers accept, without the length prefix */
#define IMAGE_NUMBER_MAX                                                                                \
    (UINT64_C(1) << 53)             /* so that every size and shape is exact in a JSON reader that uses \
                                       doubles */
#define IMAGE_FILLER       "__pad_" /* the prefix of the keys of gaps */
#define IMAGE_METADATA     "__metadata__"
#define IMAGE_SHARDING     "DCP_SHARDING_INFO"
#define IMAGE_GLOBAL_SHAPE "tck_global_shapes"

static inline uint64_t align_up(uint64_t value, uint64_t align)
{
    return (value + align - 1) / align * align;
}

/* Places the shard's records (those of the rank that shard->records lists, in that order), prints shard->header and
 * sets image_bytes. What it has allocated belongs to the shard, also on failure. */
must_check tck_status_t image_build(struct record *records, struct shard *shard, struct error *err);

#endif
